"""nanoset-ref when --bulk and skip: many documents, byte ranges and texts in one search."""

import json

from cli_helpers import FILES

from nanoset_ref.preprocess import load_tokenizer
from nanoset_ref.tokens import open_tokens


def test_many_questions_are_answered_in_a_table(run, ask, demo):
    with_mark = "\ufeff91\n0:3\n1:7\n"  # as some editors save it
    (demo / "bulk.txt").write_text(with_mark, encoding="utf-8")
    code, text, error = run("when", "--run", "demo", *FILES, "--bulk", "bulk.txt")
    lines = [line.split("\t") for line in text.splitlines()]
    assert code == 0 and not error
    assert lines[0][:4] == ["query", "stage", "step", "position"]
    for question, document in (("91", 91), ("0:3", 3)):
        asked = ask("when", "--config", "tokens.yaml", "--document", document)
        found = sorted(
            [int(line[2]), int(line[3])] for line in lines if line[0] == question
        )
        assert found == sorted([row["step"], row["position"]] for row in asked)
    (demo / "bytes.txt").write_text("1000-1258\n")
    text = run("when", "--run", "demo", "--bulk", "bytes.txt")[1]
    asked = ask("when", "--run", "demo", "--byte-range", 1000, 1258)
    assert [int(line.split("\t")[3]) for line in text.splitlines()[1:]] == [
        row["position"] for row in asked
    ]
    (demo / "binary").write_bytes(b"\xff\xfe\x00")
    for words in (["when", "--bulk", "binary"], ["skip", "binary"]):
        error = run(*words, "--run", "demo", *FILES)[2]
        assert (
            "a line is [SOURCE:]DOCUMENT, [SOURCE:]FIRST_BYTE-END_BYTE, a text" in error
        )
    for line in ('[1, "a"]', "[]", "[1.0]", "[true]", "[[1]]", '""'):
        (demo / "bad.txt").write_text(f"0:3\n{line}\n")
        error = run("when", "--run", "demo", *FILES, "--bulk", "bad.txt")[2]
        assert error.endswith(f"or ids as a JSON list, got {line!r}\n")
    error = run("when", "--run", "demo", "--bulk", "bulk.txt")[2]
    assert "91: document numbers and passages need the token files: give" in error


def test_texts_and_ids_are_looked_for_in_all_files_at_once(
    run, ask, demo, stories, monkeypatch
):
    """Each text as --text finds it alone: one that step 1 reads, and the beginning of another."""
    tokenizer = open_tokens(FILES[1]).facts["tokenizer"]
    named = "--tokenizer", tokenizer
    rows = ask("where", "--run", "demo", *FILES, "--step", 1)
    begun = [part for row in rows for part in row["parts"] if part["start"] == 0]
    numbers = max(begun, key=lambda part: part["stop"])["document"], 3
    pieces = [stories[number][:40].strip() for number in numbers]
    encode = load_tokenizer(tokenizer).encode
    ids = encode(" ".join(["", *pieces[0].split(" ")[1:-1]]), add_special_tokens=False)
    lines = [*map(json.dumps, [*pieces, ids, "zyzzyva quokka xyst"])]
    (demo / "passages.txt").write_text("\n".join(lines))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    words = "--run", "demo", *FILES, *named
    code, text, error = run("when", *words, "--bulk", "passages.txt")
    assert code == 0 and "documents searched" in error
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    found = {line: {row[3] for row in rows if row[0] == line} for line in lines}
    for line, piece in zip(lines, pieces, strict=False):
        asked = ask("when", *words, "--text", piece)
        assert found[line] == {str(row["position"]) for row in asked}
    assert found[lines[2]] and not found[lines[3]]
    assert run("skip", "passages.txt", *words)[0] == 0


def test_a_run_without_some_documents(run, ask, demo):
    (demo / "bulk.txt").write_text("\ufeff91\n", encoding="utf-8")
    one, two = ask("skip", "bulk.txt", "--run", "demo", *FILES)
    steps = {
        row["step"] for row in ask("when", "--run", "demo", *FILES, "--document", 91)
    }
    assert one["steps"] + two["steps"] == len(steps)
    first = min(steps)
    code, text, _ = run("skip", "bulk.txt", "--run", "demo", *FILES)
    assert code == 0 and f"from step {first} on later rows move forward, by" in text
    (demo / "none.txt").write_text("1:0\n")
    assert (
        "stage stories: reads none of these rows, and stays as it is"
        in run("skip", "none.txt", "--run", "demo", *FILES)[1]
    )
