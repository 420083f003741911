"""The agent's HTTP app."""

from fastapi import FastAPI

from dsagent import __version__
from dsagent.api import v1
from dsagent.entrypoints.serve import datasets, health, leases, metrics, openapi, reading, tasks, upkeep
from dsagent.entrypoints.serve.authentication import Authentication
from dsagent.entrypoints.serve.metrics import HttpMetrics, measure
from dsagent.entrypoints.serve.openapi import operation_id
from dsagent.entrypoints.serve.problems import handle_problems
from dsagent.entrypoints.serve.request_limits import RequestLimits
from dsagent.entrypoints.serve.state import State


def make_app(state: State | None) -> FastAPI:
    """The app; without a state it can only tell what it offers."""
    app = FastAPI(
        title="dsagent",
        version=__version__,
        description=v1.__doc__ or "",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=operation_id,
    )
    app.state.shared = state
    handle_problems(app)
    parts = (health, tasks, datasets, reading, leases, upkeep, metrics, openapi)
    for part in parts:
        app.include_router(part.router)
    app.state.routes = [route for part in parts for route in part.router.routes]
    app.add_middleware(RequestLimits)
    if state is not None:
        app.add_middleware(Authentication, state=state)
        measure(state)
        app.add_middleware(HttpMetrics, registry=state.registry)
    return app
