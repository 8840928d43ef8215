"""SPDX licence expressions: unknown is refused."""

from __future__ import annotations

from license_expression import ExpressionError as SpdxError
from license_expression import get_spdx_licensing

from astra_mcp.errors import BundleError

_SPDX = get_spdx_licensing()


def check_spdx(text: str) -> str:
    """Return `text` when it is a valid SPDX expression of known licences.

    Raises:
        BundleError: it is empty, malformed, or names a licence that SPDX does not know.
    """
    remedy = "Use an SPDX expression such as CC0-1.0, MIT or 'Apache-2.0 OR MIT'."
    try:
        unknown = _SPDX.unknown_license_keys(text) if text.strip() else ["(empty)"]
        parsed = None if unknown else _SPDX.parse(text, validate=True, strict=True)
    except (SpdxError, ValueError) as error:
        raise BundleError(f"{text!r} is no SPDX licence expression: {error}.", remedy) from error
    if parsed is None:
        raise BundleError(f"Licence {text!r} is not known to SPDX.", remedy)
    return text
