"""CSV for programs that a person may look at in a terminal."""

import csv
import io

from slurm_trace.cli.output import print_csv


def test_csv_steers_no_terminal_and_keeps_text(capsys):
    text = 'a\x1b[2Jb\x9bc\x00d\re\u202ef\u2066g\tüñ 漢\nh,"i'
    print_csv(["x", "y"], [{"x": text, "y": ["\x1b", "\u202e"]}, {"x": "\rb", "y": None}])
    out = capsys.readouterr().out
    assert list(csv.reader(io.StringIO(out)))[1:] == [
        ['a�[2Jb�c�d�e�f�g\tüñ 漢\nh,"i', '["\\u001b", "\\u202e"]'],
        ["'�b", ""],
    ]
    assert all(c.isprintable() or c in "\t\n" for c in out)
