"""python -m nanoset_ref.corpus FOLDER"""

import argparse

from nanoset_ref.corpus import prepare_corpus


def main() -> None:
    """Write the embedded corpus into a folder and say where everything lies."""
    parser = argparse.ArgumentParser(prog="python -m nanoset_ref.corpus", description="Write the embedded corpus.")
    parser.add_argument("folder", help="where to write it; nothing happens if it is there already")
    corpus = prepare_corpus(parser.parse_args().folder)
    for name, path in {**corpus.domains, "tokenizer": corpus.tokenizer}.items():
        print(f"{name}: {path}")


if __name__ == "__main__":
    main()
