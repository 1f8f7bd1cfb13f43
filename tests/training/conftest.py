"""Training runs over the same data, started with any ranks, and killed."""

import json
import time

import numpy as np
import pytest
from ranks import Ranks
from ranks.tasks import train_and_hold, train_run
from run_config import run_tree

from nanoset_ref.tokens import TokenFileWriter
from nanoset_ref.train.metrics import read_metrics


class Runs:
    """Runs over the same data: two stages, the second blended and read by a worker."""

    def __init__(self, folder):
        self.folder = folder
        self.paths = [str(folder / f"{name}_input_ids.npy") for name in "ab"]
        for path, size in zip(self.paths, (4000, 3000), strict=True):
            with TokenFileWriter(path, dtype="uint16", vocab_size=300) as writer:
                writer.write_document(np.random.RandomState(size).randint(0, 300, size))

    def config(self, name, **options):
        """Write the YAML of a run called `name`; the file's path."""
        options = {"steps": 20, "interval": 3, "accumulation": 2} | options
        blend = {self.paths[0]: 0.5, self.paths[1]: 0.5}
        stages = [
            ("one", 1, {"dataset_path": self.paths[0]}, {}),
            ("two", 7, {"dataset_path": blend}, {"num_loading_workers": 1}),
        ]
        path = self.folder / f"{name}.yaml"
        path.write_text(
            json.dumps(run_tree(self.folder / name, stages, length=32, **options))
        )  # JSON is YAML
        return str(path)

    def start(self, name, hold=(), **options):
        """Start a run; `hold` is the place and the step at which it never goes on (see `train_and_hold`)."""
        config = self.config(name, **options)
        size = options.get("dp", 1) * options.get("pp", 1) * options.get("tp", 1)
        words = ["--config", config, "--log-samples"]
        target = train_and_hold if hold else train_run
        return Ranks(size, target, (words, *hold), self.folder / f"{name}.log")

    def finish(self, name, **options):
        self.start(name, **options).wait()
        return self.lines(name)

    def lines(self, name):
        """The metrics so far, without the speed."""
        path = self.folder / name / "metrics.jsonl"
        lines = read_metrics(path) if path.exists() else []
        for line in lines:
            assert line.pop("tokens_per_second") > 0
            assert 0 <= line.pop("data_wait") <= 1
        return lines

    def kill_after(self, goal, name, **options):
        """Let a run hold when it has written the line of step `goal`, and SIGKILL all ranks."""
        ranks = self.start(name, hold=("line", goal), **options)
        assert self.kill_once(lambda: len(self.lines(name)) >= goal, ranks)

    def kill_once(self, happened, ranks, seconds=0.0):
        """SIGKILL all ranks `seconds` after something has happened; False if they ended before."""
        while not happened():
            if all(process.exitcode == 0 for process in ranks.processes):
                return False
            assert not any(process.exitcode for process in ranks.processes), (
                ranks.log.read_text()
            )
            time.sleep(0.002)
        time.sleep(seconds)
        ranks.kill()
        return True


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def whole(runs):
    """The lines of a run that nobody interrupts."""
    return runs.finish("whole", dp=2)
