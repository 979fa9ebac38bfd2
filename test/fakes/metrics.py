"""A provider of metrics whose series tests can read."""

from collections.abc import Callable, Mapping

from tfjob_operator.controller.events.delivery import DROPPED
from tfjob_operator.workqueue.metrics import Metric


class Series:
    """Counter, gauge and histogram in one; it records what is counted and observed."""

    def __init__(self) -> None:
        self.count = 0
        self.observed: list[float] = []
        self.read: Callable[[], float]

    def inc(self) -> None:
        self.count += 1

    def observe(self, amount: float, /) -> None:
        self.observed.append(amount)


class FakeMetrics:
    """`MetricsProvider`: the series by the name of their metric and the values of their labels."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, ...], Series] = {}
        self.families: dict[Metric, Callable[[], Mapping[tuple[str, ...], float]]] = {}
        """What reads each family whose series are not made one by one."""

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
        """The one series of a family, which must have been made."""
        name = metric if isinstance(metric, str) else metric.name
        (found,) = [series for key, series in self.series.items() if key[0] == name]
        return found

    def counted(self, metric: Metric) -> dict[tuple[str, ...], int]:
        """How often each series of a family was counted, by its labels; those at zero are left out."""
        return {key[1:]: series.count for key, series in self.series.items() if key[0] == metric.name and series.count}


class Drops(FakeMetrics):
    """What recorders drop, by type and reason."""

    @property
    def count(self) -> dict[tuple[str, ...], int]:
        return self.counted(DROPPED)
