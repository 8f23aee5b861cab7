"""`python -m baselines` killed while it writes its folder."""

import baselines.__main__ as command
from tests.faults.forked import check_kills


def test_a_killed_command_leaves_no_folder_and_the_same_command_ends(tiny_bert, text_file, tmp_path):
    def whiten(folder):
        command.main(["whitening", str(tiny_bert), "--pooling=avg", f"--train_file={text_file}", "--dimensions=31",
                      f"--output={folder / 'white'}"])  # fmt: skip

    def placed(folder):
        return {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("white/**/*") if path.is_file()
        }

    check_kills(whiten, tmp_path, placed, 6)
