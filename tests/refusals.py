"""What an error must look like."""

import pytest

from common.errors import BadInput


def refused(call, *args, match=None, error=BadInput, **named):
    """The message of the error that a call raises: one line, in which a pattern is found."""
    with pytest.raises(error, match=match) as caught:
        call(*args, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)
