"""`make verify DATA_DIR=...`: checks against published numbers, on real data."""


def pytest_addoption(parser):
    parser.addoption("--data_dir", default="corpora", help="folder with senteval/downstream")
