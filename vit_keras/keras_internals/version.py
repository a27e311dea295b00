"""The versions of Keras whose private names are used."""

import keras

SUPPORTED = "3.15"  # the minor version whose private names are used here
REQUIREMENT = "keras>=3.15,<3.16"


def check_keras() -> None:
    """Checks that Keras has the private names that the caller is about to use.

    Raises:
        ImportError: If the installed version is not a supported one.
    """
    if keras.__version__.split(".")[:2] != SUPPORTED.split("."):
        raise ImportError(
            f"This operation uses private names of Keras {SUPPORTED}, which other versions may not "
            f'have. Received: Keras {keras.__version__}. Run: pip install "{REQUIREMENT}"'
        )
