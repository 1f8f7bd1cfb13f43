"""Two converts and a merge on a Ray cluster of two nodes: python tests/on_ray.py CORPUS FOLDER SOURCE ...

In a process of its own: what Ray's threads leave behind can end the processes that are forked later.
"""

import sys
from pathlib import Path

from datatrove.executor import RayPipelineExecutor
from ray import cluster_utils

from nanoset_ref.cli import Commands


def add_node(cluster: cluster_utils.Cluster) -> None:
    """Add a node without the processes that this test does not need; again, while Ray gives up.

    A node of Ray 2.60 (November 2026) dies if its agents take more than 15 seconds to start, as they do on a busy
    machine: https://github.com/ray-project/ray/issues/65983
    """
    less = {
        "include_dashboard": False,
        "include_log_monitor": False,
        "no_monitor": True,
    }
    while True:
        try:
            return cluster.add_node(num_cpus=1, **less)
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise


def merge_on_a_cluster(corpus: Path, folder: Path, *sources: str) -> None:
    """Convert the token file of each source, each by one task; a task that depends on these merges them."""
    copies = [str(folder / f"{source}_input_ids.npy") for source in sources]
    apart = Commands(
        [["convert", str(corpus / Path(copy).name), copy] for copy in copies]
    )
    together = Commands([["merge", *copies, str(folder / "whole_input_ids.npy")]])
    cluster = cluster_utils.Cluster()
    try:
        add_node(cluster)
        add_node(cluster)
        cluster.connect()
        first = RayPipelineExecutor(
            [apart],
            tasks=len(sources),
            logging_dir=f"{folder}/logs",
            mem_per_cpu_gb=0.1,
        )
        RayPipelineExecutor(
            [together], depends=first, logging_dir=f"{folder}/m", mem_per_cpu_gb=0.1
        ).run()
    finally:
        cluster_utils.ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    merge_on_a_cluster(*map(Path, sys.argv[1:3]), *sys.argv[3:])
