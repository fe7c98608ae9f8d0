"""Every error a user can meet.

    NoisewiseError
    ├── StudyError        the public contract is wrong            (also a ValueError)
    ├── DataError         a table does not fit its study          (also a ValueError)
    ├── OutputError       a file can't be written                 (also an OSError)
    ├── LedgerError       the ledger is damaged or not this one's
    │   └── OverspendError    the budget that is left is too small
    ├── ReleaseError      a file is not a sound release           (also a ValueError)
    │   └── MismatchError     releases that can't be fitted together
    ├── FitError          a method can't be used like this        (also a ValueError)
    └── RoundError        a step or message of a secure sum is refused (also a ValueError)
        ├── ForgeryError      a signature, seal or hash does not hold
        ├── RefusedError      another party refused what was sent to it, and said why
        └── UnreachableError  a party of the round can't be reached, or failed (also an OSError)

A message says what was given, what is allowed and what to do. It names columns, rows and files and
never quotes a value of a table: messages end in logs, and logs travel.
"""


class NoisewiseError(Exception):
    """Parent of all errors of this package."""


class StudyError(NoisewiseError, ValueError):
    """The study (the public contract) is wrong."""


class DataError(NoisewiseError, ValueError):
    """A table does not fit its study; nothing was spent."""


class OutputError(NoisewiseError, OSError):
    """A file can't be written; the message says so if budget was spent before."""


class LedgerError(NoisewiseError):
    """The ledger is damaged, foreign, or belongs to something else."""


class OverspendError(LedgerError):
    """The release would pass the total that the holder set."""


class ReleaseError(NoisewiseError, ValueError):
    """A file is not a sound release."""


class MismatchError(ReleaseError):
    """Releases of different studies can't be fitted together."""


class FitError(NoisewiseError, ValueError):
    """A method can't be used with these releases, this prior or these options."""


class RoundError(NoisewiseError, ValueError):
    """A step or a message of a secure sum is refused."""


class ForgeryError(RoundError):
    """A signature, a seal or a hash of a secure sum does not hold."""


class RefusedError(RoundError):
    """Another party of a secure sum refused what was sent to it; ``status`` is its HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class UnreachableError(RoundError, OSError):
    """A party of a secure sum can't be reached or failed; what was to be sent can be sent again."""


class NoisewiseWarning(UserWarning):
    """Something works but deserves a thought."""


class UnrecordedSpendWarning(NoisewiseWarning):
    """Privacy budget was spent with no ledger to record it."""
