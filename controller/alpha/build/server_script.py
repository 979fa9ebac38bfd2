"""The program of parameter servers that have no container of their own. Text: it runs in the user's image, not here."""

from __future__ import annotations

from typing import Final

SCRIPT: Final = '''\
"""Serve as one task of a TensorFlow cluster until the pod is deleted. For TensorFlow 1 and 2, Python 2.7 and 3.

  --cluster_spec  master|host:port,ps|host:port;host:port
  --job_name      the type of this task, such as ps
  --task_id       its number
"""
from __future__ import print_function

import argparse
import sys

import tensorflow as tf


def cluster_of(text):
    """Return the addresses by type."""
    cluster = {}
    for part in text.split(","):
        kind, _, hosts = part.partition("|")
        if not hosts:
            raise ValueError("no addresses of %r in --cluster_spec" % kind)
        cluster[kind] = hosts.split(";")
    return cluster


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster_spec", required=True, type=cluster_of)
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_id", required=True, type=int)
    given = parser.parse_args()
    # TensorFlow 2 has the server here, TensorFlow 1 there.
    distribute = getattr(tf, "distribute", None)
    server_class = getattr(distribute, "Server", None) or tf.train.Server
    cluster = tf.train.ClusterSpec(given.cluster_spec)
    server = server_class(cluster, job_name=given.job_name, task_index=given.task_id)
    print("serving as %s %d at %s" % (given.job_name, given.task_id, server.target))
    sys.stdout.flush()  # or the log would be empty for as long as it serves
    server.join()


if __name__ == "__main__":
    main()
'''
