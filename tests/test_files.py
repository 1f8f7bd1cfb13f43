"""Files are complete or absent, also when the writer is killed."""

import fcntl
import functools
import os
import subprocess
import sys

import pytest

from nanoset_ref.chunks import TokenizeConfig
from nanoset_ref.io import files
from nanoset_ref.io.files import (
    atomic_write,
    atomic_write_set,
    clean_up_after_killed_writers,
    make_folder,
    write_together,
)
from nanoset_ref.io.memory import memory_limit
from nanoset_ref.io.paths import checksum, file_size
from nanoset_ref.load.document_masks import DocumentOptions
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.megatron import NanosetConfig
from nanoset_ref.streaming.row_stream import StreamOptions
from nanoset_ref.tokens import TokenFile, TokenFileWriter, convert, open_tokens
from nanoset_ref.train.parallel import ParallelLayout


@pytest.mark.parametrize("old", [None, "old"])
def test_a_file_is_complete_or_as_it_was(tmp_path, old):
    path = tmp_path / "a.txt"
    if old:
        path.write_text(old)
    before = list(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == before and (
        old is None or path.read_text() == old
    )
    with atomic_write(path) as file:
        file.write(b"tokens")
        file.flush()
        assert path.exists() == bool(old)
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == b"tokens"
    with pytest.raises(FileNotFoundError, match="the folder .*nowhere does not exist"):
        atomic_write(tmp_path / "nowhere" / "a.bin").__enter__()


def test_the_next_writer_removes_what_a_dead_one_left_and_nothing_else(tmp_path):
    (tmp_path / ".a.bin.1-deadbeef.tmp").write_bytes(b"half")
    (tmp_path / ".b.bin.1-deadbeef.tmp").write_bytes(b"of a writer of another target")
    with atomic_write(tmp_path / "a.bin") as file:
        clean_up_after_killed_writers(tmp_path / "a.bin")
        assert len(list(tmp_path.iterdir())) == 2, (
            "the temporary of a live writer must stay"
        )
        file.write(b"whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        ".b.bin.1-deadbeef.tmp",
        "a.bin",
    ]


def test_two_sets_that_are_written_together_appear_together(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    targets = {
        name: tmp_path / name
        for name in ("a.bin", "a.idx", "folder/b.bin", "folder/b.idx")
    }

    def found():
        return {
            path.relative_to(tmp_path).as_posix(): path.read_text()
            for path in tmp_path.rglob("*.*")
        }

    def write(content, overwrite=False):
        sets = [*zip(*[iter(targets.values())] * 2, strict=True)]
        with write_together(*(last for _, last in sets)):
            for parts in sets:
                with atomic_write_set(parts, overwrite=overwrite) as files:
                    for file in files:
                        file.write(content.encode())
                assert content not in [
                    path.read_text() for path in targets.values() if path.exists()
                ]
        assert found() == dict.fromkeys(targets, content)

    def killed(source, target, replace=os.replace):
        if target == targets["folder/b.idx"]:
            raise SystemExit
        replace(source, target)

    write("old")
    with pytest.raises(FileExistsError, match="--overwrite"):
        write("new")
    write("new", overwrite=True)
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(os, "replace", killed)
        write("newest", overwrite=True)
    assert found()["a.idx"] == "newest" and "folder/b.idx" not in found()
    write("last")


@pytest.mark.parametrize("order", [1, -1])
def test_two_sets_of_a_writer_killed_anywhere_are_written_again(tmp_path, order):
    """The set that is opened first may be published first, or last."""
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]

    def write(content):
        with write_together(*paths):
            writers = [TokenFileWriter(path, dtype="uint16") for path in paths]
            for writer in writers:
                writer.__enter__()
                writer.write_document([content])
            for writer in writers[::order]:
                writer.__exit__(None, None, None)

    def killed_at(change, event, arguments):
        if event in ("os.rename", "os.remove") and next(change, None) is None:
            os._exit(9)

    for changes in range(100):
        child = os.fork()
        if child == 0:
            sys.addaudithook(functools.partial(killed_at, iter(range(changes))))
            write(changes)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            break
        whole = [path for path in paths if path.exists()]
        if len(whole) < 2:
            write(100 + changes)
            assert [TokenFile(path).tokens[0] for path in paths] == [100 + changes] * 2
        for path in tmp_path.iterdir():
            path.unlink()
    assert changes > 12


@pytest.mark.parametrize(
    ("leftovers", "are_replaced"),
    [
        ((".a.bin.7-0123abcd.tmp", ".a.idx.7-4567abcd.tmp"), False),
        ((".a.idx.7-4567abcd.0.tmp",), True),
    ],
    ids=["killed while it wrote", "killed while it published"],
)
def test_a_file_beside_a_killed_writer_s_is_foreign_unless_that_one_had_begun_to_publish(
    tmp_path, leftovers, are_replaced
):
    for name in leftovers:
        (tmp_path / name).write_text("leftover")
    (tmp_path / "a.bin").write_text("old")

    def write():
        paths = [tmp_path / "a.bin", tmp_path / "a.idx"]
        with atomic_write_set(paths) as files:
            for file in files:
                file.write(b"new")

    if are_replaced:
        write()
    else:
        with pytest.raises(FileExistsError, match="a.bin exists and is left"):
            write()
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    expected = {"a.bin": "new", "a.idx": "new"} if are_replaced else {"a.bin": "old"}
    assert found == expected


def test_a_link_whose_target_is_missing_is_not_replaced_unasked(tmp_path):
    link = tmp_path / "a.bin"
    link.symlink_to(tmp_path / "not mounted")
    with (
        pytest.raises(FileExistsError, match="a.bin exists and is left unchanged"),
        atomic_write_set([link]) as files,
    ):
        files[0].write(b"new")
    assert link.is_symlink()


def test_a_folder_in_the_way_leaves_the_old_set_whole(tmp_path):
    paths = [tmp_path / "a.bin", tmp_path / "a.seal", tmp_path / "a.idx"]
    for path in (paths[0], paths[2]):
        path.write_text("old")
    paths[1].mkdir()
    with (
        pytest.raises(IsADirectoryError, match="a.seal is a folder, but a file"),
        atomic_write_set(paths, overwrite=True) as files,
    ):
        files[0].write(b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.bin",
        "a.idx",
        "a.seal",
    ]
    assert paths[0].read_text() == paths[2].read_text() == "old"


def test_a_name_that_leaves_no_room_for_its_temporary_is_refused_before_the_work(
    tmp_path,
):
    longest = tmp_path / ("ü" * 105)
    with atomic_write_set([tmp_path / "a", longest]) as opened:
        # the longest name that a temporary can get: of a process and an inode with most digits
        temporary = files._PendingFile(
            longest.with_name(f".{longest.name}.{1 << 22}-01234567.tmp"), longest
        )
        assert len(os.fsencode(temporary.marked_name(2**64 - 1).name)) <= 255
        opened[0].write(b"new")
    rule = r"ü: its name must have at most 210 bytes, .+; choose a shorter name"
    with pytest.raises(ValueError, match=rule), atomic_write(f"{longest}ü"):
        pass
    assert sorted(tmp_path.iterdir()) == [tmp_path / "a", longest]


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("inside", ["", "x", "x/y"])
def test_a_folder_in_whose_place_is_a_file_names_that_file(tmp_path, inside, link):
    obstacle = tmp_path / "file"
    if link:
        obstacle.symlink_to("nowhere")
    else:
        obstacle.write_text("kept")
    with pytest.raises(
        OSError, match=f"made, because {obstacle} is not a folder: name"
    ):
        make_folder(obstacle / inside)
    make_folder(tmp_path / "new/er")
    make_folder(tmp_path / "new/er")
    assert (tmp_path / "new/er").is_dir() and os.path.lexists(obstacle)


def test_checksum_is_xxh3_of_the_content(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    assert (
        checksum(tmp_path / "a") == "xxh3_128:99aa06d3014798d86001c324468d497f"
    )  # the published value for no input
    (tmp_path / "a").write_bytes(b"x" * (1 << 22) + b"y")
    assert checksum(tmp_path / "a") != checksum(__file__)


def test_a_temporary_that_was_taken_for_a_leftover_is_made_anew(tmp_path, monkeypatch):
    """Between its making and its lock another writer may remove it."""
    lock, taken = fcntl.flock, []

    def late(file, how):
        if not taken and how == fcntl.LOCK_EX:
            taken.extend(tmp_path.iterdir())
            clean_up_after_killed_writers(tmp_path / "a")
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with atomic_write(tmp_path / "a") as file:
        file.write(b"whole")
    assert len(taken) == 1
    assert (tmp_path / "a").read_text() == "whole" and len(
        list(tmp_path.iterdir())
    ) == 1


@pytest.mark.parametrize(
    ("options", "wrong", "meant"),
    [
        (NanosetConfig, "path_to_cach", "path_to_cache"),
        (DocumentOptions, "eos_token_idd", "eos_token_id"),
        (Schedule, "dpsize", "dp_size"),
        (StreamOptions, "shufle_buffer", "shuffle_buffer"),
        (TokenizeConfig, "concat_token", "concat_tokens"),
        (ParallelLayout, "dp_rnk", "dp_rank"),
    ],
)
def test_an_unknown_option_is_refused_with_the_closest_one(options, wrong, meant):
    with pytest.raises(
        TypeError,
        match=f"^{options.__name__}: {wrong}: unknown key, did you mean '{meant}'.$",
    ):
        options(**{wrong: 1})


def test_options_of_a_wrong_type_or_choice_are_refused():
    with pytest.raises(
        ValueError, match="^concat_tokens must be an integer of at least 2, got 'x'$"
    ):
        TokenizeConfig(tokenizer="t", concat_tokens="x")
    with pytest.raises(ValueError, match="^tail must be one of .*, got 'x'$"):
        TokenizeConfig(tokenizer="t", tail="x")


def test_the_folders_of_all_parts_of_a_set_survive_a_power_cut(tmp_path, monkeypatch):
    synced, folders = [], [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(files, "sync_folder", synced.append)
    with atomic_write_set([folder / "part" for folder in folders]):
        pass
    assert sorted(synced) == folders


GROUPS = {
    "v2": (
        "0::/job/task",
        {"job/memory.max": "7000", "job/task/memory.max": "max"},
        7000,
    ),
    "v2 in a container": ("0::/", {"memory.max": "5000"}, 5000),
    "v1": (
        "9:pids:/x\n4:cpu,memory:/job",
        {"memory/job/memory.limit_in_bytes": "6000"},
        6000,
    ),
    "v1 in a container": (
        "4:memory:/not/seen/here",
        {"memory/memory.limit_in_bytes": "4000"},
        4000,
    ),
    "no limit": ("0::/job", {"job/memory.max": "max"}, None),
    "v1 without a limit": (
        "4:memory:/",
        {"memory/memory.limit_in_bytes": "9223372036854771712"},
        None,
    ),
    "damaged": ("0::/job", {"job/memory.max": ""}, None),
    "not UTF-8": ("0::/b\udcfcro", {"b\udcfcro/memory.max": "7000"}, 7000),
}


@pytest.mark.parametrize("name", GROUPS)
def test_memory_is_what_the_control_groups_of_the_process_allow(tmp_path, name):
    said, limits, expected = GROUPS[name]
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_bytes(os.fsencode(f"{said}\n"))
    for path, limit in limits.items():
        (tmp_path / "sys/fs/cgroup" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/fs/cgroup" / path).write_text(f"{limit}\n")
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert memory_limit(tmp_path) == (expected or machine)
    assert memory_limit(tmp_path / "nowhere") == machine >= memory_limit()


IN_PLACE = {
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", IN_PLACE)
@pytest.mark.parametrize(
    "end",
    [
        ".npy",
        ".json",
        ".documents.npy",
        ".sources.npz",
        ".bin",
        ".idx",
        ".ds",
        ".ds.index",
    ],
)
def test_a_pipe_a_device_or_a_folder_in_the_place_of_a_file_is_an_error_at_once(
    tmp_path, kind, end
):
    def read(path):
        file = open_tokens(path)
        return len(file.tokens), len(file.require_document_offsets()), file.label_of(0)

    with TokenFileWriter(tmp_path / "a.npy", dtype="uint16") as writer:
        writer.write_document([1, 2, 3])
        writer.write_labels(["x"], [0])
    for other in ("bin", "ds"):
        convert([TokenFile(tmp_path / "a.npy")], tmp_path / f"a.{other}")
    opened = (
        tmp_path
        / f"a{'.npy' if end in ('.json', '.documents.npy', '.sources.npz') else end[:4].rstrip('.')}"
    )
    (tmp_path / f"a{end}").unlink()
    IN_PLACE[kind](tmp_path / f"a{end}")
    with pytest.raises((ValueError, OSError), match=f"a{end}"):
        read(opened)
    with pytest.raises(ValueError, match="is not a regular file"):
        file_size(tmp_path / f"a{end}")


def test_a_program_that_imports_the_package_is_no_command_of_ours(tmp_path):
    """It keeps its own handler of Ctrl-C, whatever its name."""
    said = "import sys, nanoset_ref\nprint('nanoset_ref.cli.startup' in sys.modules)\n"
    for name in ("nanoset_ref_x", "nanoset_refs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(said)
        (tmp_path / name / "__main__.py").write_text("")
        paths = os.pathsep.join([str(tmp_path), os.getcwd()])
        done = subprocess.run(
            [sys.executable, "-m", name],
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
        )
        assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr
