"""A provider of metrics whose series tests can read."""

from collections.abc import Callable, Mapping

from tfjob_operator.controller.events.delivery import DROPPED
from tfjob_operator.workqueue.metrics import Metric


class Series:
    """Counter, gauge and histogram in one; records increments and observations."""

    def __init__(self) -> None:
        self.count = 0
        self.observed: list[float] = []
        self.read: Callable[[], float]

    def inc(self, amount: float = 1, /) -> None:
        self.count += int(amount)

    def observe(self, amount: float, /) -> None:
        self.observed.append(amount)


class FakeMetrics:
    """`MetricsProvider`: series by the name of their metric and their label values."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, ...], Series] = {}
        self.families: dict[Metric, Callable[[], Mapping[tuple[str, ...], float]]] = {}
        """The function that reads each family whose series are not created one by one."""

    def counter(self, metric: Metric, *values: str) -> Series:
        assert len(values) == len(metric.labels), f"{metric.name} has the labels {metric.labels}, not {values}"
        return self.series.setdefault((metric.name, *values), Series())

    histogram = counter

    def gauge(self, metric: Metric, *values: str, read: Callable[[], float]) -> None:
        self.counter(metric, *values).read = read

    def gauges(self, metric: Metric, read: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        self.families[metric] = read

    def remove(self, metric: Metric, *values: str) -> None:
        del self.series[metric.name, *values]

    def __getitem__(self, metric: Metric | str) -> Series:
        """Return the only series of a family, which must exist."""
        name = metric if isinstance(metric, str) else metric.name
        (found,) = [series for key, series in self.series.items() if key[0] == name]
        return found

    def counted(self, metric: Metric) -> dict[tuple[str, ...], int]:
        """Return the count of each series of a family by its labels, without zeros."""
        return {key[1:]: series.count for key, series in self.series.items() if key[0] == metric.name and series.count}


class Drops(FakeMetrics):
    """Events dropped by recorders, by type and reason."""

    @property
    def count(self) -> dict[tuple[str, ...], int]:
        return self.counted(DROPPED)
