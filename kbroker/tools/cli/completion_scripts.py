"""Scripts for bash, zsh and fish that complete ``kbroker``, made from its words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kbroker.tools.cli.command_words import ASKED, DIRECTORIES, FILES, Option, Value, summaries, words_of
from kbroker.tools.cli.parser import Command


def bash_script(commands: Mapping[str, Command]) -> str:
    """The script for bash 3.2 and later, which needs nothing beside it."""
    words = words_of(commands)
    known = list(summaries(commands, words))
    lines = ["# Completion of kbroker for bash: source <(kbroker completion bash)", "", "_kbroker_spec() {"]
    lines += ["    case $1 in"]
    for each in words:
        options = " ".join(name for option in each.options for name in option.names)
        values = " ".join(
            f"{name}:{_bash_kind(option.value)}"
            for option in each.options
            if option.value is not None
            for name in option.names
        )
        places = " ".join(f"{_bash_kind(place)}{'*' if place.repeats else ''}" for place in each.places)
        lines.append(f"    {_quoted(each.path)}) options={_quoted(options)} values={_quoted(values)}")
        lines.append(f"        places={_quoted(places)} ;;")
    lines += ["    esac", "}", "", "_kbroker_actions() {", "    case $1 in"]
    for name, _, actions in known:
        if actions:
            lines.append(f"    {name}) actions={_quoted(' '.join(action for action, _ in actions))} ;;")
    names = " ".join([*(name for name, _, _ in known), "--help", "--version"])
    return "\n".join([*lines, "    esac", "}", "", _BASH.replace("@NAMES@", _quoted(names))])


def _bash_kind(value: Value) -> str:
    return "=" + ",".join(value.choices) if value.choices else value.kind


_BASH: Final = r"""_kbroker_ask() {
    local -a where
    local i
    where=()
    for ((i = 1; i < last; i++)); do
        case ${words[i]} in
        -b | --bootstrap-server | --profile | --command-config) where+=("${words[i]}" "${words[i + 1]}") ;;
        esac
    done
    "${words[0]}" completion "$1" "${where[@]}" 2>/dev/null </dev/null
}

_kbroker_complete() {
    local IFS=$'\n' given
    case $1 in
    files | dirs)
        compopt -o filenames 2>/dev/null
        if [ "$1" = files ]; then COMPREPLY=($(compgen -f -- "$cur")); else COMPREPLY=($(compgen -d -- "$cur")); fi ;;
    topics | groups | profiles)
        while read -r given; do
            case $given in "$cur"*) COMPREPLY+=("$given") ;; esac
        done < <(_kbroker_ask "$1") ;;
    =*) given=${1#=} && COMPREPLY=($(compgen -W "${given//,/$IFS}" -- "$cur")) ;;
    esac
}

# bash replaces only what follows the last break within a word; an @, though, begins the word that it replaces.
_kbroker() {
    local cur breaks kept
    _kbroker_find
    breaks=${COMP_WORDBREAKS//[^:=@]/}
    if [ -n "$breaks" ]; then
        kept=${cur%"${cur##*[$breaks]}"}
        COMPREPLY=("${COMPREPLY[@]#"${kept%@}"}")
    fi
}

_kbroker_find() {
    local -a words
    local line=${COMP_LINE:0:COMP_POINT} prev last key actions options values places pair kind place i start
    read -ra words <<<"$line"
    case $line in *[[:space:]]) words+=("") ;; esac
    last=$((${#words[@]} - 1))
    cur=${words[last]}
    prev=${words[last - 1]}
    COMPREPLY=()
    if ((last == 1)); then
        COMPREPLY=($(compgen -W @NAMES@ -- "$cur"))
        return
    fi
    key=${words[1]} start=2 actions=
    _kbroker_actions "$key"
    if [ -n "$actions" ]; then
        if ((last == 2)); then
            COMPREPLY=($(compgen -W "$actions --help" -- "$cur"))
            return
        fi
        key="$key ${words[2]}" start=3
    fi
    options= values= places=
    _kbroker_spec "$key"
    for pair in $values; do
        if [ "${pair%%:*}" = "$prev" ]; then
            _kbroker_complete "${pair#*:}"
            return
        fi
    done
    case $cur in
    -*)
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
        return ;;
    esac
    place=0
    for ((i = start; i < last; i++)); do
        case ${words[i]} in
        -*) for pair in $values; do [ "${pair%%:*}" = "${words[i]}" ] && ((i++)) && break; done ;;
        *) ((place++)) ;;
        esac
    done
    i=0
    set -f
    for kind in $places; do
        if ((i == place)) || [ "${kind%\*}" != "$kind" ]; then
            set +f
            _kbroker_complete "${kind%\*}"
            return
        fi
        ((i++))
    done
    set +f
}

complete -F _kbroker kbroker
"""


# --- zsh ------------------------------------------------------------------------------------------------------------


def zsh_script(commands: Mapping[str, Command]) -> str:
    """The script for zsh 5, which calls zsh's own ``_arguments``."""
    words = words_of(commands)
    lines = ["#compdef kbroker", "# Completion of kbroker for zsh: source <(kbroker completion zsh)", "", _ZSH_ASK]
    lines += [
        "_kbroker() {",
        "    local curcontext=$curcontext key program=$words[1]",
        "    local -a known _kbroker_line",
    ]
    lines += ["    _kbroker_line=($words)", "    if (( CURRENT == 2 )); then", "        known=("]
    known = list(summaries(commands, words))
    lines += [f"            {_described(name, summary)}" for name, summary, _ in known]
    lines += [
        "        )",
        "        _describe -t commands command known",
        "        return",
        "    fi",
        "    key=$words[2]",
    ]
    lines += ["    case $key in"]
    for name, _, actions in known:
        if actions:
            lines += [f"    {name})", "        if (( CURRENT == 3 )); then", "            known=("]
            lines += [f"                {_described(action, summary)}" for action, summary in actions]
            lines += [
                "            )",
                "            _describe -t actions action known",
                "            return",
                "        fi",
            ]
            lines += ['        key+=" $words[3]"', "        shift words; (( CURRENT-- )) ;;"]
    lines += ["    esac", "    shift words; (( CURRENT-- ))", "    case $key in"]
    for each in words:
        specs = [spec for option in each.options for spec in _zsh_option(option)]
        specs += [_zsh_place(index, place) for index, place in enumerate(each.places, 1)]
        lines += [f"    {_quoted(each.path)})", "        _arguments -S \\"]
        lines += [" \\\n".join(f"            {spec}" for spec in specs) + " ;;"]
    lines += ["    esac", "}", "", _ZSH_END]
    return "\n".join(lines)


# `_arguments` puts options for compadd before the words that it is given.
_ZSH_ASK: Final = r"""_kbroker_ask() {
    local kind=$argv[-1]
    local -a where found
    local i
    for (( i = 2; i < $#_kbroker_line; i++ )); do
        case $_kbroker_line[i] in
        (-b|--bootstrap-server|--profile|--command-config) where+=("$_kbroker_line[i]" "$_kbroker_line[i+1]") ;;
        esac
    done
    found=(${(f)"$($program completion $kind $where 2>/dev/null </dev/null)"})
    (( $#found )) && compadd "${(@)argv[1,-2]}" -- $found
}
"""

_ZSH_END: Final = """if [ "$funcstack[1]" = "_kbroker" ]; then
    _kbroker "$@"
else
    compdef _kbroker kbroker
fi
"""


def _described(name: str, summary: str) -> str:
    return _quoted(f"{name}:{summary.replace(':', ' -')}")


def _zsh_option(option: Option) -> Iterator[str]:
    text = option.help.replace("\\", "").replace("[", "(").replace("]", ")")
    for name in option.names:
        tail = "" if option.value is None else f":{_zsh_value(option.value)}"
        yield _quoted(f"*{name}[{text}]{tail}")


def _zsh_place(index: int, place: Value) -> str:
    return _quoted(f"{'*' if place.repeats else index}:{_zsh_value(place)}")


def _zsh_value(value: Value) -> str:
    name = value.name.replace(":", "\\:").replace("[", "(").replace("]", ")") or "value"
    if value.choices:
        return f"{name}:({' '.join(value.choices)})"
    if value.kind in ASKED:
        return f"{name}:_kbroker_ask {value.kind}"
    return f"{name}:{ {FILES: '_files', DIRECTORIES: '_files -/'}.get(value.kind, ' ') }"


# --- fish -----------------------------------------------------------------------------------------------------------


def fish_script(commands: Mapping[str, Command]) -> str:
    """The script for fish 3."""
    words = words_of(commands)
    lines = ["# Completion of kbroker for fish: kbroker completion fish | source", "", _FISH, "complete -c kbroker -f"]
    for name, summary, actions in summaries(commands, words):
        lines.append(f"complete -c kbroker -n '__kbroker_has 1' -a {name} -d {_quoted(summary)}")
        for action, text in actions:
            lines.append(f"complete -c kbroker -n '__kbroker_has 2 {name}' -a {action} -d {_quoted(text)}")
    for each in words:
        begin = f"complete -c kbroker -n '__kbroker_at {each.path}'"
        lines += [f"{begin} {_fish_option(option)}" for option in each.options]
        lines += [f"{begin} {given}" for place in each.places if (given := _fish_value(place, place=True))]
    return "\n".join([*lines, ""])


_FISH: Final = r"""function __kbroker_has
    set -l words (commandline -opc)
    test (count $words) -eq $argv[1]; or return 1
    test (count $argv) -eq 1; or test "$words[2]" = "$argv[2]"
end

function __kbroker_at
    set -l words (commandline -opc)
    set -l count (count $argv)
    test (count $words) -gt $count; or return 1
    set -l last (math $count + 1)
    test "$words[2..$last]" = "$argv"
end

function __kbroker_ask
    set -l words (commandline -opc)
    set -l where
    for i in (seq 2 (count $words))
        switch $words[$i]
            case -b --bootstrap-server --profile --command-config
                set -l next (math $i + 1)
                test $next -le (count $words); and set where $where $words[$i] $words[$next]
        end
    end
    $words[1] completion $argv[1] $where 2>/dev/null </dev/null
end
"""


def _fish_option(option: Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    value = "" if option.value is None else f" {_fish_value(option.value)}"
    return f"{' '.join(names)}{value} -d {_quoted(option.help)}"


def _fish_value(value: Value, *, place: bool = False) -> str:
    exclusive = "" if place else "-x "
    if value.choices:
        return f"{exclusive}-a {_quoted(' '.join(value.choices))}"
    if value.kind in ASKED:
        return f"{exclusive}-a '(__kbroker_ask {value.kind})'"
    if value.kind in (FILES, DIRECTORIES):
        return "-F" if place else "-r -F"
    return "" if place else "-x"


def _quoted(text: str) -> str:
    """A word for any of the three shells."""
    return "'" + text.replace("'", "’") + "'"


SCRIPTS: Final = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
