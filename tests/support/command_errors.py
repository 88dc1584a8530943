"""What a command says on stderr."""


def error_line(capsys):
    printed = capsys.readouterr().err.strip()
    assert printed.startswith("attack: error: ") and "\n" not in printed
    return printed
