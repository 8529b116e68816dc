"""Who asks: the execution and its life in the path, and its token, in whichever header the protocol carries it."""

from aiohttp import web

from gyre_hpc.gateway.protocols.base import RequestError
from gyre_hpc.protocol.identity import parse_address
from gyre_hpc.protocol.tokens import is_execution_token


class Access:
    """Checks requests of harnesses."""

    def __init__(self, run_token: str) -> None:
        self._run_token = run_token

    def execution(self, request: web.Request) -> str:
        """The execution this request belongs to. Raises RequestError 404 or 401."""
        return self.asked(request)[0]

    def asked(self, request: web.Request) -> tuple[str, int]:
        """The execution this request belongs to, and which life of it. Raises RequestError 404 or 401."""
        address = request.match_info["execution"]
        try:
            execution, life = parse_address(address)
        except ValueError as error:
            raise RequestError(str(error), status=404, code="execution_unknown") from None
        if not is_execution_token(_given(request), self._run_token, address):
            text = "Authorization: give this execution's key as a Bearer token (or as x-api-key)"
            raise RequestError(text, status=401, code="invalid_api_key")
        return execution, life


def _given(request: web.Request) -> str:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer":
        token = request.headers.get("x-api-key", "")
    return token.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
