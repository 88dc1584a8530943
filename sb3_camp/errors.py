"""The error that every part of the package raises for input that a user can put right."""


class InputError(ValueError):
    """
    What the user gave cannot be used: a log, a folder, an argument.

    The message is one line that says what is wrong, where (file, row, key) and what to do about it. The command-line tools
    print it without a traceback and exit with status 2.
    """


class CertificateViolation(Exception):
    """
    What was played contradicts a certificate: returns are lower than it promises against this attack, by more than chance
    explains. Either the certificate or its assumptions are wrong, or the episodes were unlikely.

    The message is one line. The command-line tools print it and exit with status 3.
    """


class NoGradients(InputError):
    """The outputs of a policy do not depend on its observations in a way that can be differentiated."""
