"""What Hypothesis draws, the same at every run."""

import hypothesis
from hypothesis import strategies

from tests.fuzz.damage import KINDS, Damage

shares = strategies.floats(0, 1, exclude_max=True)
damages = strategies.builds(
    Damage,
    kind=strategies.sampled_from(sorted(KINDS)),
    place=shares,
    other=shares,
    length=strategies.integers(1, 512),
    content=strategies.integers(0, 2**31),
)


def fixed(examples: int):
    """Settings by which a test has the same examples everywhere, and no clock."""
    return hypothesis.settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],  # a failure shows its example as it was drawn
        suppress_health_check=list(hypothesis.HealthCheck),
    )
