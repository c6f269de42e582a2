"""One sandbox for each file of tests, empty at the start of each test."""

import pytest

from sandbox_client import Sandbox


@pytest.fixture(scope="module")
def program():
    sandbox = Sandbox()
    yield sandbox
    sandbox.end()


@pytest.fixture
def sandbox(program):
    program.control("DELETE", "")
    yield program
    assert program.process.poll() is None
