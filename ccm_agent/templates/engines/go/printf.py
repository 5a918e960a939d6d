"""
`printf` of Go's package fmt: flags, width, precision, `%[2]d`, and error marks such as `%!d(string=x)`.

Source: the documentation of Go's package fmt.
"""

from __future__ import annotations

from typing import Any

from ccm_agent.model.gathered import GatheredRecord
from ccm_agent.templates.engines.bounds import check_length
from ccm_agent.templates.engines.escapes import quote
from ccm_agent.templates.engines.go.formatfloat import format_float
from ccm_agent.templates.engines.gotypes import Complex, TypedList, go_type, is_unsigned
from ccm_agent.templates.goprint import go_print, sorted_keys
from ccm_agent.templates.values import GoValue, to_bytes

_FLAGS = "#0+- "
_SIZE_MAX = 1_000_000  # a larger width or precision is ignored, as in Go


class _Spec:
    """The part between `%` and the verb."""

    __slots__ = ("minus", "plus", "plus_v", "precision", "sharp", "sharp_v", "space", "width", "zero")

    def __init__(self, flags: str = "") -> None:
        self.sharp = "#" in flags
        self.zero = "0" in flags
        self.plus = "+" in flags
        self.minus = "-" in flags
        self.space = " " in flags
        self.sharp_v = False
        self.plus_v = False
        self.width: int | None = None
        self.precision: int | None = None

    def pad(self, text: str, *, zeroes: bool = True) -> str:
        """Pad the text to the width, counted in characters."""
        if not self.width:
            return text
        if self.minus:
            return text.ljust(self.width)
        return text.rjust(self.width, "0" if self.zero and zeroes else " ")


class _Printer:
    """One call: the layout, the position in it, and the next argument."""

    def __init__(self, layout: str, arguments: tuple[Any, ...]) -> None:
        self._layout = layout
        self._position = 0
        self._arguments = arguments
        self._next = 0
        self._reordered = False
        self._good = True  # whether the last [n] referred to an existing argument
        self._after_index = False

    def run(self) -> str:
        out: list[str] = []
        length = 0
        while self._position < len(self._layout):
            percent = self._layout.find("%", self._position)
            if percent < 0:
                out.append(self._layout[self._position :])
                break
            out.append(self._layout[self._position : percent])
            self._position = percent + 1
            out.append(self._verb())
            length += len(out[-1])
            check_length(length)
        if not self._reordered and self._next < len(self._arguments):
            out.append(self._extra())
        return "".join(out)

    def _verb(self) -> str:
        start = self._position
        while self._layout[self._position : self._position + 1] in tuple(_FLAGS):
            self._position += 1
        spec = _Spec(self._layout[start : self._position])
        self._good = True
        self._after_index = self._index()
        before = self._width(spec) + self._precision(spec)
        if not self._after_index:
            self._index()
        if self._position >= len(self._layout):
            return before + "%!(NOVERB)"
        verb = self._layout[self._position]
        self._position += 1
        if verb == "%":
            return before + "%"
        if not self._good:
            return f"{before}%!{verb}(BADINDEX)"
        if self._next >= len(self._arguments):
            return f"{before}%!{verb}(MISSING)"
        argument = self._arguments[self._next]
        self._next += 1
        return before + _print_argument(argument, verb, spec)

    def _index(self) -> bool:
        """Consume `[n]` if the layout has it at this position."""
        if self._layout[self._position : self._position + 1] != "[":
            return False
        self._reordered = True
        closing = self._layout.find("]", self._position)
        digits = self._layout[self._position + 1 : closing]
        if closing < 0 or len(self._layout) - self._position < 3:
            self._position += 1
            self._good = False
            return False
        self._position = closing + 1
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 8 else 0
        if 1 <= number <= len(self._arguments):
            self._next = number - 1
            return True
        self._good = False
        return digits.isascii() and digits.isdigit()

    def _star(self) -> int | None:
        """Return the argument for a `*`."""
        self._position += 1
        self._after_index = False
        if self._next >= len(self._arguments):
            return None
        value = self._arguments[self._next]
        self._next += 1
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _SIZE_MAX:
            return None
        return int(value)

    def _width(self, spec: _Spec) -> str:
        if self._at("*"):
            spec.width = self._star()
            if spec.width is None:
                return "%!(BADWIDTH)"
            if spec.width < 0:
                spec.width = -spec.width
                spec.minus, spec.zero = True, False
            return ""
        spec.width = self._digits()
        if spec.width is not None and self._after_index:
            self._good = False
        return ""

    def _precision(self, spec: _Spec) -> str:
        if not self._at(".") or self._position + 1 >= len(self._layout):
            return ""
        self._position += 1
        if self._after_index:
            self._good = False
        self._after_index = self._index()
        if self._at("*"):
            spec.precision = self._star()
            bad = spec.precision is None or spec.precision < 0
            if bad:
                spec.precision = None
            return "%!(BADPREC)" if bad else ""
        spec.precision = self._digits() or 0
        return ""

    def _at(self, char: str) -> bool:
        return self._layout[self._position : self._position + 1] == char

    def _digits(self) -> int | None:
        start = self._position
        while "0" <= self._layout[self._position : self._position + 1] <= "9":
            self._position += 1
        digits = self._layout[start : self._position]
        if not digits:
            return None
        if len(digits) > 8 or int(digits) > _SIZE_MAX:
            self._position = len(self._layout)
            return None
        return int(digits)

    def _extra(self) -> str:
        shown = (
            "<nil>" if value is None else f"{go_type(value)}={_print_argument(value, 'v', _Spec())}"
            for value in self._arguments[self._next :]
        )
        return f"%!(EXTRA {', '.join(shown)})"


def sprintf(layout: str, arguments: tuple[Any, ...]) -> str:
    """
    Format the arguments according to the layout.

    Raises:
        TemplateError: The text would be too long.
    """
    return _Printer(layout, arguments).run()


def _print_argument(value: Any, verb: str, spec: _Spec) -> str:
    if verb == "v":
        spec.sharp_v, spec.sharp = spec.sharp, False
        spec.plus_v, spec.plus = spec.plus, False
    if value is None:
        return spec.pad("<nil>") if verb in "Tv" else f"%!{verb}(<nil>)"
    if verb == "T":
        return spec.pad(go_type(value)[: spec.precision])
    return _print_value(value, verb, spec)


def _print_value(value: Any, verb: str, spec: _Spec) -> str:
    if isinstance(value, bool):
        return spec.pad("true" if value else "false") if verb in "tv" else _bad(value, verb, spec)
    if isinstance(value, float):
        return _print_float(value, verb, spec)
    if isinstance(value, int):
        return _print_int(value, verb, spec)
    if isinstance(value, str):
        return _print_text(value, verb, spec)
    if isinstance(value, bytes):
        return _print_bytes(value, verb, spec)
    if isinstance(value, GatheredRecord) and verb in "vsqxX":
        return _print_text(go_print(value), "s" if verb == "v" else verb, spec)
    if isinstance(value, dict):
        return _print_map(value, verb, spec)
    if isinstance(value, (list, tuple)):
        return _print_list(value, verb, spec)
    if isinstance(value, Complex):
        return spec.pad(value.go_text()) if verb == "v" else _bad(value, verb, spec)
    if isinstance(value, GoValue) and verb in "vsqxX":
        return _print_text(value.go_text(), "s" if verb == "v" else verb, spec)
    return _bad(value, verb, spec)


def _bad(value: Any, verb: str, spec: _Spec) -> str:
    return f"%!{verb}({go_type(value)}={_print_value(value, 'v', spec)})"


def _print_inner(value: Any, verb: str, spec: _Spec) -> str:
    """Print an element of a list or map."""
    if value is None:
        return "interface {}(nil)" if spec.sharp_v else "<nil>"
    return _print_value(value, verb, spec)


def _print_list(value: Any, verb: str, spec: _Spec) -> str:
    parts: list[str] = []
    length = 0
    for item in value:
        parts.append(_print_inner(item, verb, spec))
        length += len(parts[-1]) + 2
        check_length(length)
    if not spec.sharp_v:
        return f"[{' '.join(parts)}]"
    is_nil = isinstance(value, TypedList) and value.is_nil
    return f"{go_type(value)}(nil)" if is_nil else f"{go_type(value)}{{{', '.join(parts)}}}"


def _print_map(value: dict[Any, Any], verb: str, spec: _Spec) -> str:
    parts: list[str] = []
    length = 0
    for key in sorted_keys(value):
        parts.append(f"{_print_inner(key, verb, spec)}:{_print_inner(value[key], verb, spec)}")
        length += len(parts[-1]) + 2
        check_length(length)
    return f"{go_type(value)}{{{', '.join(parts)}}}" if spec.sharp_v else f"map[{' '.join(parts)}]"


def _print_text(text: str, verb: str, spec: _Spec) -> str:
    if verb == "s" or (verb == "v" and not spec.sharp_v):
        return spec.pad(text[: spec.precision])
    if verb == "q" or verb == "v":
        text = text[: spec.precision]
        if spec.sharp and "`" not in text and all(char == "\t" or char.isprintable() for char in text):
            return spec.pad(f"`{text}`")
        return spec.pad(quote(text, ascii_only=spec.plus))
    if verb in "xX":
        return _print_hex(to_bytes(text), verb, spec)
    return _bad(text, verb, spec)


def _print_bytes(data: bytes, verb: str, spec: _Spec) -> str:
    if verb in "sq":
        return _print_text(data.decode("utf-8", "surrogateescape"), verb, spec)
    if verb in "xX":
        return _print_hex(data, verb, spec)
    if verb in "vd" and spec.sharp_v:
        return "[]byte{" + ", ".join(f"0x{byte:x}" for byte in data) + "}"
    return "[" + " ".join(_print_int(byte, "d" if verb == "v" else verb, spec) for byte in data) + "]"


def _print_hex(data: bytes, verb: str, spec: _Spec) -> str:
    data = data[: spec.precision]
    mark = f"0{verb}" if spec.sharp else ""
    text = (" " + mark).join(f"{byte:02x}" for byte in data) if spec.space else data.hex()
    text = text.upper() if verb == "X" else text
    return spec.pad(mark + text if data else "")


def _print_int(value: int, verb: str, spec: _Spec) -> str:
    unsigned = is_unsigned(value)
    if verb == "v" and spec.sharp_v and unsigned:
        return spec.pad(f"0x{int(value):x}")
    if verb in _BASES:
        return _print_digits(int(value), verb, spec)
    code = int(value) % 2**64
    if verb == "c":
        return spec.pad(_char(code))
    if verb == "q":
        return spec.pad(quote(_char(code), "'", ascii_only=spec.plus))
    if verb == "U":
        text = f"U+{code:04X}" if (spec.precision or 0) <= 4 else f"U+{code:0{spec.precision}X}"
        if spec.sharp and code < 0x110000 and chr(code).isprintable():
            text += f" '{chr(code)}'"
        return spec.pad(text, zeroes=False)
    return _bad(value, verb, spec)


_BASES = {"v": "d", "d": "d", "b": "b", "o": "o", "O": "o", "x": "x", "X": "X"}


def _char(code: int) -> str:
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def _print_digits(value: int, verb: str, spec: _Spec) -> str:
    sign = "-" if value < 0 else "+" if spec.plus else " " if spec.space else ""
    if spec.precision == 0 and value == 0:
        return " " * (spec.width or 0)
    digits = format(abs(value), _BASES[verb])
    if spec.precision is not None:
        digits = digits.rjust(spec.precision, "0")
    elif spec.zero and not spec.minus and spec.width:
        digits = digits.rjust(spec.width - len(sign), "0")
    if spec.sharp and verb in "xXb":
        digits = f"0{verb}{digits}"
    if spec.sharp and verb in "oO" and not digits.startswith("0"):
        digits = f"0{digits}"
    if verb == "O":
        digits = f"0o{digits}"
    return spec.pad(sign + digits, zeroes=False)


def _print_float(value: float, verb: str, spec: _Spec) -> str:
    if verb not in "vbgGxXfFeE":
        return _bad(value, verb, spec)
    letter = {"v": "g", "F": "f"}.get(verb, verb)
    precision = spec.precision
    if precision is None and letter in "feE":
        precision = 6
    text = format_float(value, letter, precision, sharp=spec.sharp)
    sign, text = ("-", text[1:]) if text.startswith("-") else ("+", text.removeprefix("+"))
    finite = text not in ("Inf", "NaN")
    if sign == "+":
        sign = "+" if spec.plus or (text == "Inf" and not spec.space) else " " if spec.space else ""
    if sign and finite and spec.zero and not spec.minus and spec.width:
        return sign + text.rjust(spec.width - len(sign), "0")
    return spec.pad(sign + text, zeroes=finite)
