"""A run is composed once, though Hydra asks twice, and is what Hydra would have composed."""

from __future__ import annotations

from hydra._internal.utils import create_automatic_config_search_path
from hydra.core.utils import setup_globals
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from runner.cli.config.loader import CONF, Loader
from runner.schema.register import register

TYPED = ["model=net.onnx", "strategy=repeat"]


def test_a_run_is_composed_at_the_question_for_its_mode() -> None:
    register()
    setup_globals()
    begun: list[tuple[RunMode, DictConfig]] = []
    path = create_automatic_config_search_path(None, None, str(CONF))
    loader, plain = (Loader(path, lambda mode, config: begun.append((mode, config))) for _ in range(2))
    asked = loader.load_configuration("config", TYPED, RunMode.MULTIRUN, validate_sweep_overrides=False)
    assert asked.hydra.mode is None and not begun
    now = [*TYPED, "hydra.mode=RUN"]  # as Hydra goes on where no mode was set
    config = loader.load_configuration("config", now, RunMode.RUN)
    (started,) = begun
    assert started[0] is RunMode.RUN and started[1] is config
    at_once = plain.load_configuration("config", now, RunMode.RUN)
    assert OmegaConf.to_container(config) == OmegaConf.to_container(at_once)
    assert len(begun) == 1, "where nobody asks for a mode nothing begins"


def test_a_sweep_is_composed_as_one() -> None:
    register()
    begun: list[RunMode] = []
    path = create_automatic_config_search_path(None, None, str(CONF))
    loader = Loader(path, lambda mode, _: begun.append(mode))
    loader.load_configuration("config", ["model=a,b"], RunMode.MULTIRUN, validate_sweep_overrides=False)
    loader.load_configuration("config", ["model=a,b", "hydra.mode=MULTIRUN"], RunMode.MULTIRUN)
    assert begun == [RunMode.MULTIRUN]
