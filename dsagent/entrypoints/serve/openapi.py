"""The OpenAPI document of the API. `python -m dsagent.entrypoints.serve.openapi` writes it."""

import sys
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from dsagent.core.problem import Problem
from dsagent.entrypoints.serve.asking import Identified
from dsagent.entrypoints.serve.authentication import OPEN

router = APIRouter(tags=["health"])

PROBLEM = {"$ref": "#/components/schemas/ProblemAnswer"}
ERROR = {"description": "An RFC 9457 problem", "content": {"application/problem+json": {"schema": PROBLEM}}}


@router.get("/openapi.json", response_class=Response, responses={200: {"content": {"application/json": {}}}})
async def openapi(request: Request, _who: Identified) -> Response:
    """The OpenAPI document."""
    return Response(written(request.app), media_type="application/json")


def written(app: FastAPI) -> bytes:
    """The document of an app as JSON, with a line for each field."""
    return orjson.dumps(_document(app), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def operation_id(route: APIRoute) -> str:
    """The name of an operation, for programs that are generated."""
    return route.name


def _document(app: FastAPI) -> dict[str, Any]:
    """What FastAPI says of the app, but that errors are problems."""
    document = app.openapi()
    components = document["components"]
    schemas = components["schemas"]
    for framework in ("HTTPValidationError", "ValidationError"):
        schemas.pop(framework, None)
    problem = TypeAdapter(Problem).json_schema()
    problem["title"] = "ProblemAnswer"
    problem["properties"]["status"] = {"title": "Status", "type": "integer"}
    problem["required"].append("status")
    schemas["ProblemAnswer"] = problem
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    # Over the socket, root of the host needs none.
    document["security"] = [{"token": []}, {}]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            if path in OPEN:
                operation["security"] = []
            else:
                operation["responses"]["default"] = ERROR
    return document


def main() -> None:
    """Writes the document to standard output."""
    from dsagent.entrypoints.serve.app import make_app  # noqa: PLC0415 - it imports this module

    sys.stdout.buffer.write(written(make_app(None)))


if __name__ == "__main__":
    main()
