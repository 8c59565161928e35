"""Settings: read once from layers, checked against one registry, frozen, passed down.

    defaults.toml  <  ./penstock.toml  <  --config FILE  <  PENSTOCK__SECTION__KEY=value

`defaults.toml` is the registry: a key that it does not have is an error. An empty table there is a free-form map of
text, whose keys are not checked; dotted keys under it are joined again, as Spark's names need.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer, ValidationError

from penstock.common.errors import SettingsError
from penstock.common.quantities import Duration, Size
from penstock.common.redaction import MASK, looks_secret, redact

__all__ = ["Config", "Duration", "Settings", "Size", "StringMap", "load_config"]

_DEFAULTS = "defaults.toml"
_PROJECT_FILE = "penstock.toml"
_VARIABLE_PREFIX = "penstock__"

_Path = tuple[str, ...]

StringMap = Annotated[Mapping[str, str], AfterValidator(MappingProxyType), PlainSerializer(dict)]
"""The type of a free-form map in a section's model."""


class Settings(BaseModel):
    """The base of a section's model; its defaults are in `defaults.toml`, not in the model."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


_Section = TypeVar("_Section", bound=Settings)


@dataclass(frozen=True, slots=True)
class _Setting:
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class _Registry:
    """The keys that exist."""

    defaults: Mapping[_Path, Any]
    maps: frozenset[_Path]
    sections: frozenset[_Path]

    def map_of(self, path: _Path) -> _Path | None:
        """The free-form map that a key is in, or is."""
        return next((path[:end] for end in range(1, len(path) + 1) if path[:end] in self.maps), None)

    def nearest(self, path: _Path) -> str | None:
        known = [".".join(key) for key in (*self.defaults, *self.maps)]
        return next(iter(difflib.get_close_matches(".".join(path).lower(), known, n=1)), None)


@dataclass(frozen=True, slots=True)
class Config:
    """All settings, with where each came from."""

    _registry: _Registry
    _settings: Mapping[_Path, _Setting]

    def section(self, name: str, model: type[_Section]) -> _Section:
        """One section as its model; raises SettingsError naming each key that is wrong."""
        try:
            return model.model_validate(self._tree().get(name, {}))
        except ValidationError as error:
            reasons = "; ".join(self._reason(name, problem["loc"], problem["msg"]) for problem in error.errors())
        # Outside the handler: pydantic's error holds the values, and a chained error would show them.
        raise SettingsError(reasons)

    def redacted(self) -> dict[str, Any]:
        """All settings as they may be shown."""
        return self._tree(redacted=True)

    def _tree(self, *, redacted: bool = False) -> dict[str, Any]:
        tree: dict[str, Any] = {}
        for path in sorted(self._registry.maps):
            _put(tree, path, {})
        for path, setting in self._settings.items():
            _put(tree, path, _shown(path, setting.value) if redacted else setting.value)
        return tree

    def _reason(self, section: str, location: tuple[int | str, ...], message: str) -> str:
        path = (section, *(str(part) for part in location))
        # The location can go on into the value, as it does for a list.
        found = (self._settings.get(path[:end]) for end in range(len(path), 0, -1))
        source = next((f" (from {setting.source})" for setting in found if setting), "")
        if any(looks_secret(part) for part in path):
            return f"{'.'.join(path)}{source} is not valid; its value is not shown"
        reason = message.removeprefix("Value error, ")
        return f"{'.'.join(path)}{source}: {reason[:1].lower()}{reason[1:]}"


def load_config(
    config_file: Path | None = None,
    *,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Read all layers; `directory` is where penstock.toml is looked for, by default the current one."""
    defaults = tomllib.loads(files(__package__).joinpath(_DEFAULTS).read_text("utf-8"))
    registry = _registry_of(defaults)
    settings = {path: _Setting(value, _DEFAULTS) for path, value in registry.defaults.items()}
    project_file = (directory or Path()) / _PROJECT_FILE
    for file in (project_file if project_file.exists() else None, config_file):
        if file is not None:
            settings.update(_checked(registry, (), _read_file(file), str(file)))
    for variable, text in sorted((os.environ if environment is None else environment).items()):
        if variable.lower().startswith(_VARIABLE_PREFIX):
            settings.update(_read_variable(registry, settings, variable, text))
    return Config(registry, MappingProxyType(settings))


def _registry_of(defaults: Mapping[str, Any]) -> _Registry:
    values: dict[_Path, Any] = {}
    maps: set[_Path] = set()
    sections: set[_Path] = set()
    pending: list[tuple[_Path, Any]] = [((), defaults)]
    while pending:
        path, value = pending.pop(0)
        if not isinstance(value, Mapping):
            values[path] = value
        elif value:
            sections.add(path)
            pending.extend(((*path, key), item) for key, item in value.items())
        else:
            maps.add(path)
    return _Registry(MappingProxyType(values), frozenset(maps), frozenset(sections))


def _read_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        # Both bad TOML and bad UTF-8; the message of the latter would quote the file.
        reason = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "it is not UTF-8 text"
        raise SettingsError(f"{file} is not a TOML file: {reason}") from None


def _read_variable(
    registry: _Registry, settings: Mapping[_Path, _Setting], variable: str, text: str
) -> Iterator[tuple[_Path, _Setting]]:
    written = tuple(variable[len(_VARIABLE_PREFIX) :].split("__"))
    path = tuple(part.lower() for part in written)
    free_form = registry.map_of(path)
    literal = _literal(text)
    if free_form is None or free_form == path:
        is_text = isinstance(registry.defaults.get(path), str) and not isinstance(literal, str)
        return _checked(registry, path, text if is_text else literal, variable)
    path = _spelled(settings, free_form, written[len(free_form) :])
    return iter([(path, _Setting(literal if isinstance(literal, str) else text, variable))])


def _spelled(settings: Mapping[_Path, _Setting], free_form: _Path, written: _Path) -> _Path:
    """A free-form key as a file has spelled it, else in small letters where the variable's are all capitals."""
    name = ".".join(written)
    for path in settings:
        if path[:-1] == free_form and path[-1].lower() == name.lower():
            return path
    return (*free_form, name.lower() if name.isupper() else name)


def _literal(text: str) -> Any:
    try:
        document = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    # Text of several lines could hold further keys.
    return document["value"] if len(document) == 1 else text


def _checked(registry: _Registry, path: _Path, value: Any, source: str) -> Iterator[tuple[_Path, _Setting]]:
    """The settings in one value of a layer, each key known to the registry."""
    free_form = registry.map_of(path)
    known = path in registry.sections or free_form
    # An unknown table is entered too, so that the error names the whole key, which finds a better hint.
    if isinstance(value, dict) and (known or (value and path not in registry.defaults)):
        for key, item in value.items():
            yield from _checked(registry, (*path, key), item, source)
    elif free_form and free_form != path:
        yield (*free_form, ".".join(path[len(free_form) :])), _Setting(_text(path, value, source), source)
    elif path in registry.defaults:
        yield path, _Setting(value, source)
    elif known:
        raise SettingsError(f"{'.'.join(path)} (from {source}) is a section and cannot be a value")
    else:
        nearest = registry.nearest(path)
        hint = f"did you mean {nearest}?" if nearest else None
        raise SettingsError(f"unknown setting {'.'.join(path)} (from {source})", hint=hint)


def _text(path: _Path, value: Any, source: str) -> str:
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case _:
            raise SettingsError(f"{'.'.join(path)} (from {source}) must be text")


def _put(tree: dict[str, Any], path: _Path, value: Any) -> None:
    *parents, name = path
    for parent in parents:
        tree = tree.setdefault(parent, {})
    tree[name] = value


def _shown(path: _Path, value: Any) -> object:
    return MASK if any(looks_secret(part) for part in path) else redact(value)
