"""Flags and environment."""

import configparser
from dataclasses import fields
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tfjob_operator.controller.composition import warn_about_flags
from tfjob_operator.controller.leaderelection import Election, LeaderElectionConfig
from tfjob_operator.controller.options import VERSION, Options, parse_options

NO_POD = Path("/nonexistent")


def parse(*arguments: str, **environ: str) -> Options:
    return parse_options(arguments, environ, pod_namespace_file=NO_POD)


def election(options: Options) -> Election:
    assert options.election is not None
    return options.election


def test_without_flags_the_defaults_hold() -> None:
    """In a pod no flag is needed: all namespaces, election with 15, 10 and 2 s, metrics on the port of earlier operators."""
    options = parse()
    assert options == Options()
    assert (options.monitoring_port, options.namespace, options.qps) == (8443, "", 0.0)
    assert parse("--leader-elect") == options
    assert parse("--leader-elect=false").election is None
    assert election(options) == Election(
        namespace="default", name="tf-operator", times=LeaderElectionConfig(15.0, 10.0, 2.0)
    )


FLAGS = """
--kubeconfig=f --master=https://other --namespace=team --apis=tensorflow.org/v1alpha1,kubeflow.org/v1 --threadiness=4
--resync-period=1h30m --qps=5 --burst=20 --json-log-format=false --log-level=debug --controller-config-file=/etc/config/file
--retryable-exit-codes=7,130-132
--restart-backoff=false --completion-grace-period=1m --node-lost-timeout=5m --fallback-to-logs=false
--backend-variables=false --quote-log-lines=false --tensorboard-image=registry.example.com/board:1
--enable-gang-scheduling --gang-scheduler-name=scheduler-plugins-scheduler --tensorboard-service-types=NodePort,ClusterIP
--monitoring-address=127.0.0.1 --monitoring-port=0 --leader-elect-lease-duration=30s --leader-elect-renew-deadline=20s
--leader-elect-retry-period=500ms --leader-elect-resource-name=mine --leader-elect-resource-namespace=there
"""


def test_every_flag_is_read() -> None:
    environ = {
        "CUSTOM_CLUSTER_DOMAIN": "cluster.local",
        "KUBEFLOW_NAMESPACE": "home",
        "OPERATOR_DEPLOYMENT": "operator",
    }
    options = Options(
        kubeconfig="f",
        master="https://other",
        namespace="team",
        apis=("kubeflow.org/v1", "tensorflow.org/v1alpha1"),
        threadiness=4,
        resync_s=5400.0,
        qps=5.0,
        burst=20,
        json_log_format=False,
        log_level="debug",
        retryable_exit_codes=frozenset({7, 130, 131, 132}),
        controller_config_file="/etc/config/file",
        own_namespace="home",
        own_deployment="operator",
        cluster_domain="cluster.local",
        enable_gang_scheduling=True,
        gang_scheduler_name="scheduler-plugins-scheduler",
        tensorboard_service_types=("ClusterIP", "NodePort"),
        restart_backoff=False,
        completion_grace_s=60.0,
        node_lost_timeout_s=300.0,
        fallback_to_logs=False,
        backend_variables=False,
        quote_log_lines=False,
        tensorboard_image="registry.example.com/board:1",
        monitoring_address="127.0.0.1",
        monitoring_port=0,
        election=Election(namespace="there", name="mine", times=LeaderElectionConfig(30.0, 20.0, 0.5)),
    )
    assert parse(*FLAGS.split(), **environ) == options
    default = Options()
    same = [each.name for each in fields(Options) if getattr(options, each.name) == getattr(default, each.name)]
    assert same == ["unused_flags"], "a flag is missing here"


@pytest.mark.parametrize(
    ("flags", "warned"),
    [
        (["--gang-scheduler-name=volcano"], True),
        (["--gang-scheduler-name=volcano", "--enable-gang-scheduling=false"], True),
        (["--gang-scheduler-name=volcano", "--enable-gang-scheduling"], False),
        (["--enable-gang-scheduling"], False),
        ([], False),
    ],
)
def test_a_gang_scheduler_that_is_not_enabled_is_a_warning_at_the_start(flags: list[str], warned: bool) -> None:
    """training-operator needs only the name: its arguments would silently disable gang scheduling here."""
    with capture_logs() as lines:
        warn_about_flags(parse(*flags))
    told = {
        "event": "flag_has_no_effect",
        "flag": "--gang-scheduler-name",
        "requires": "--enable-gang-scheduling",
        "log_level": "warning",
    }
    assert lines == [told] * warned


@pytest.mark.parametrize(
    ("arguments", "environ", "in_pod", "expected"),
    [
        (["--leader-elect-resource-namespace=a", "--namespace=b"], {"KUBEFLOW_NAMESPACE": "c"}, "d", "a"),
        (["--namespace=b"], {"KUBEFLOW_NAMESPACE": "c"}, "d", "b"),
        ([], {"KUBEFLOW_NAMESPACE": "c"}, "d", "c"),
        ([], {}, "d\n", "d"),
        ([], {}, None, "default"),
    ],
)
def test_the_lease_lies_where_the_operator_serves_else_where_it_lives(
    arguments: list[str], environ: dict[str, str], in_pod: str | None, expected: str, tmp_path: Path
) -> None:
    """A namespaced operator needs a Role there and nothing else, and does not compete with operators of other namespaces."""
    file = tmp_path / "namespace"
    if in_pod is not None:
        file.write_text(in_pod)
    assert election(parse_options(arguments, environ, pod_namespace_file=file)).namespace == expected


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0.0), ("12h0m0s", 43200.0), ("1.5s", 1.5), ("250ms", 0.25), ("1m.5s", 60.5)]
)
def test_durations_are_those_that_go_prints(text: str, seconds: float) -> None:
    """The manifests of earlier operators can be used as they are, with the old misspelt flag."""
    assert parse("--resync-period", text).resync_s == seconds
    assert parse("--resyc-period", text).resync_s == seconds


@pytest.mark.parametrize(
    ("arguments", "environ", "expected"),
    [
        (["--threadiness", "0"], {}, "argument --threadiness: must be a positive integer, not '0'"),
        (["--threadiness", "many"], {}, "not 'many'"),
        (["--apis=kubeflow.org/v2"], {}, "argument --apis: must be a list of kubeflow.org/v1, kubeflow.org/v1alpha1"),
        (["--apis="], {}, "argument --apis: must be a list of"),
        (["--tensorboard-service-types=No"], {}, "--tensorboard-service-types: must be a list of ClusterIP, "),
        *(
            ([f"--retryable-exit-codes={codes}"], {}, "must be a list of exit codes or ranges from 1 to 255, not '")
            for codes in ("", "0", "256", "9-7", "1,,2", "-1", "1-", "1-2-3", "some", "1 2", "\u0661")
        ),
        (["--burst=-1"], {}, "argument --burst: must be a positive integer, not '-1'"),
        (["--qps=-1"], {}, "argument --qps: must be a non-negative number, not '-1'"),
        (["--qps=nan"], {}, "not 'nan'"),
        (["--json-log-format", "maybe"], {}, "must be true or false, not 'maybe'"),
        (["--log-level", "loud"], {}, "invalid choice: 'loud'"),
        (["--nonsense"], {}, "unrecognized arguments: --nonsense"),
        (["--names=a"], {}, "unrecognized arguments: --names (see --help"),
        (["team"], {}, "unrecognized arguments: only flags are allowed"),
        (["--resync-period", "12"], {}, "must be a duration such as 15s, 500ms or 1h30m, not '12'"),
        (["--resync-period", "-1s"], {}, "--resync-period"),
        (["--monitoring-port=65536"], {}, "must be between 0 and 65535, not '65536'"),
        (["--monitoring-port=http"], {}, "not 'http'"),
        (["--namespace=Team A"], {}, "must be the name of a namespace, not 'Team A'"),
        (["--leader-elect-resource-name=a_b"], {}, "not 'a_b'"),
        (["--gang-scheduler-name="], {}, "argument --gang-scheduler-name"),
        (["--leader-elect-renew-deadline=15s"], {}, "the lease duration must be greater than the renew deadline"),
        (["--leader-elect-lease-duration=15.5s"], {}, "the lease duration must be a whole number of seconds"),
        (["--leader-elect-retry-period=0"], {}, "the retry period must be greater than zero"),
        ([], {"CUSTOM_CLUSTER_DOMAIN": "cluster local"}, "variable CUSTOM_CLUSTER_DOMAIN: must be a domain"),
        ([], {"KUBEFLOW_NAMESPACE": "a/b"}, "variable KUBEFLOW_NAMESPACE: must be the name of a namespace"),
    ],
)
def test_what_is_wrong_is_reported_in_one_line_and_ends_with_2(
    arguments: list[str], environ: dict[str, str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """argparse's usage text of all flags would hide the error."""
    with pytest.raises(SystemExit) as ended:
        parse(*arguments, **environ)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_are_printed_and_end_with_0(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard output, for pipes."""
    with pytest.raises(SystemExit) as ended:
        parse(flag)
    assert ended.value.code == 0
    assert "tfjob-operator" in capsys.readouterr().out


def test_the_version_is_that_of_the_distribution() -> None:
    """It is written in two places, since reading the distribution's metadata at run time costs a megabyte."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(Path(__file__).parents[3] / "setup.cfg")
    assert settings["metadata"]["version"] == VERSION
