"""What an error must look like."""

import pytest

from common.errors import BadInput


def refused(call, *args, error=BadInput, **named):
    """The message of the error that a call raises, which must be one line."""
    with pytest.raises(error) as caught:
        call(*args, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)
