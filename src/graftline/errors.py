"""What can go wrong, grouped by what the reader of the message has to do.

    GraftlineError
    ├── ConfigError        mend the configuration file or the command line
    ├── DataError          mend or replace the input data
    ├── RecordError        rebuild the stored artefact
    └── BoundaryError      look outside: a service, a tool, the machine
        ├── DatasetError   a dataset's home
        └── SandboxError   the jail itself (an action that fails in the jail is a result, not an error)

A message is one sentence: what, which, what was expected, what to do. The classes take a message and nothing
else, so that they cross process borders.
"""


class GraftlineError(Exception):
    """The root: everything the library raises on purpose."""


class ConfigError(GraftlineError):
    """A configuration value is wrong: mend the file or the option."""


class DataError(GraftlineError):
    """Input data cannot be used as a whole (single bad rows are counted drops, not errors)."""


class RecordError(GraftlineError):
    """A stored artefact is missing, unfinished or altered: build it again."""


class BoundaryError(GraftlineError):
    """Something outside the library failed: look there."""


class DatasetError(BoundaryError):
    """The home of a dataset cannot be read, or answers with something else than was pinned."""


class SandboxError(BoundaryError):
    """The jail is broken or weaker than required; never the verdict on an action."""
