"""Levels of this process's loggers, asked and changed as configs of a BROKER_LOGGER."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode as E
from kbroker.handlers.common.broker_loggers import LEVELS, log_levels
from kbroker.wire.messages import configs as wire
from tests.handlers.metadata_plane import Plane, metadata_plane

LOGGER = 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
PACKAGE, MODULE = "kbroker.tested", "kbroker.tested.module"


@pytest.fixture(autouse=True)
def levels_as_before() -> Iterator[None]:
    logging.getLogger(MODULE)
    named = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("kbroker")]
    before = [(logger, logger.level) for logger in (logging.root, *named)]
    yield
    for logger, level in before:
        logger.setLevel(level)


def change(
    *configs: tuple[str, int, str | None], name: str = "1", dry: bool = False
) -> wire.IncrementalAlterConfigsRequest:
    entries = [
        wire.IncrementalAlterableConfig(name=key, config_operation=op, value=value) for key, op, value in configs
    ]
    resource = wire.IncrementalAlterConfigsResource(resource_type=LOGGER, resource_name=name, configs=entries)
    return wire.IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry)


def describe(name: str = "1", *keys: str) -> wire.DescribeConfigsRequest:
    resource = wire.DescribeConfigsResource(
        resource_type=LOGGER, resource_name=name, configuration_keys=list(keys) or None
    )
    return wire.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)


async def described(plane: Plane) -> dict[str, str]:
    result = (await plane.ask(describe())).results[0]
    assert (result.error_code, result.resource_type, result.resource_name) == (0, LOGGER, "1")
    assert {(c.config_source, c.read_only, c.is_sensitive, c.config_type) for c in result.configs} == {
        (6, False, False, 0)
    }
    assert not any(c.synonyms or c.documentation for c in result.configs)
    return {config.name: config.value for config in result.configs}


async def test_every_level_is_set_and_described_as_it_was_set(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        assert {"root", "kbroker", "kbroker.node.controller.metadata_plane", PACKAGE, MODULE} <= set(
            await described(plane)
        )
        for level, number in LEVELS.items():
            answer = (await plane.ask(change((PACKAGE, SET, level)))).responses[0]
            assert (answer.error_code, answer.error_message, answer.resource_type) == (0, None, LOGGER)
            assert logging.getLogger(MODULE).getEffectiveLevel() == number
            levels = await described(plane)
            assert levels[PACKAGE] == levels[MODULE] == level


async def test_a_logger_without_its_own_level_has_its_packages(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        await plane.ask(change(("root", SET, "ERROR"), ("kbroker", SET, "WARN"), (MODULE, SET, "DEBUG")))
        levels = await described(plane)
        assert [levels[name] for name in ("root", "kbroker", PACKAGE, MODULE)] == ["ERROR", "WARN", "WARN", "DEBUG"]
        await plane.ask(change((MODULE, DELETE, None), ("kbroker", DELETE, None)))
        levels = await described(plane)
        assert [levels[name] for name in ("root", "kbroker", PACKAGE, MODULE)] == ["ERROR"] * 4
        assert not logging.getLogger(MODULE).isEnabledFor(logging.WARNING)


@pytest.mark.parametrize("is_controller", [False, True], ids=["broker", "controller"])
async def test_a_wrong_change_is_refused_with_all_beside_it(tmp_path: Path, is_controller: bool) -> None:
    async with metadata_plane(tmp_path) as plane:
        before = await described(plane)
        wanted = change((PACKAGE, SET, "FATAL"), ("no.such.Logger", SET, "INFO"))
        answer = (await plane.ask(wanted, is_controller=is_controller)).responses[0]
        assert (answer.error_code, answer.error_message) == (E.INVALID_CONFIG, "Logger no.such.Logger does not exist!")
        assert await described(plane) == before


async def test_only_validated_changes_nothing(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        before = await described(plane)
        assert (await plane.ask(change((MODULE, SET, "FATAL"), dry=True))).responses[0].error_code == 0
        assert await described(plane) == before


async def test_a_controllers_own_loggers_are_changed_on_its_listener(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        answer = await plane.ask(change((MODULE, SET, "FATAL")), listener="CONTROLLER", is_controller=True)
        assert answer.responses[0].error_code == 0
        assert (await described(plane))[MODULE] == "FATAL"


async def test_chosen_loggers_are_described_and_every_node_is_listed(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        result = (await plane.ask(describe("1", MODULE, "root", "no.such.Logger"))).results[0]
        assert sorted(config.name for config in result.configs) == [MODULE, "root"]
        listed = await plane.ask(wire.ListConfigResourcesRequest(resource_types=[LOGGER]))
        assert [(r.resource_name, r.resource_type) for r in listed.config_resources] == [("1", LOGGER)]


@pytest.mark.parametrize(
    ("level", "name"),
    [(1, "TRACE"), (5, "TRACE"), (7, "TRACE"), (10, "DEBUG"), (25, "INFO"), (50, "FATAL"), (51, "OFF")],
)
def test_levels_that_kafka_has_no_name_for(level: int, name: str) -> None:
    logging.getLogger(MODULE).setLevel(level)
    assert log_levels()[MODULE] == name
