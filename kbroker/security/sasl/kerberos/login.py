"""Logins to Kerberos, from a line of JAAS (``Krb5LoginModule``), and the time at which a ticket is to be renewed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from kbroker.security.sasl.jaas import JaasEntry, JaasError, LoginModule
from kbroker.security.sasl.mechanism import Settings

_TRUTHS = {"true": True, "false": False}
_FLAGS = ("useKeyTab", "useTicketCache", "storeKey", "doNotPrompt", "isInitiator", "refreshKrb5Config", "renewTGT")
_REFUSED = ("useFirstPass", "tryFirstPass", "storePass", "clearPass")
"""Options by which modules share passwords: there is one module, and it has none."""
_TEXTS = ("keyTab", "principal", "ticketCache", "serviceName")
_ALL = (*_FLAGS, *_REFUSED, *_TEXTS, "debug")
_CLOSE = 0.8
"""The likeness (`difflib`) of a word to an option from which it is taken for it, misspelt, and shown."""
_PREFIXES = ("FILE:", "file:")


@dataclass(frozen=True, slots=True)
class KerberosOptions:
    """A line's options. Paths of files are as they stand; None leaves them to ``krb5.conf`` and the environment."""

    principal: str | None
    use_keytab: bool
    keytab: str | None
    use_ticket_cache: bool
    ticket_cache: str | None
    service_name: str
    without_effect: tuple[str, ...]
    """Options that change nothing here."""

    @classmethod
    def of(cls, entry: JaasEntry, service_name: str | None) -> KerberosOptions:
        """The options of a JAAS line and of ``sasl.kerberos.service.name``. :class:`JaasError` if one cannot be met."""
        options = entry.options
        flags = {name: _truth(options, name) for name in _FLAGS}
        for name in _REFUSED:
            if _truth(options, name):
                raise JaasError(f"{name}=true is not supported: passwords are not used")
        _check_names(options)
        if not flags["useKeyTab"] and not flags["useTicketCache"]:
            raise JaasError("useKeyTab=true or useTicketCache=true is needed: nobody is asked for a password")
        if flags["useKeyTab"] and not options.get("principal"):
            raise JaasError("useKeyTab=true needs the option principal")
        if options.get("principal") == "*":
            raise JaasError('principal="*" is not supported: name one')
        without_effect = [name for name in ("refreshKrb5Config", "renewTGT", "debug") if _truth(options, name)]
        return cls(
            options.get("principal") or None,
            flags["useKeyTab"],
            _path(options.get("keyTab")),
            flags["useTicketCache"],
            _path(options.get("ticketCache")),
            _service_name(options.get("serviceName"), service_name),
            tuple(without_effect),
        )


def _check_names(options: Mapping[str, str]) -> None:
    """An option that is misspelt is shown; any other might be a part of what is secret."""
    for name in options.keys() - set(_ALL):
        names = {option.lower(): option for option in _ALL}
        close = get_close_matches(name.lower(), names, 1, _CLOSE)
        if close:
            raise JaasError(f"{LoginModule.KERBEROS.value} has no option {name}; did you mean {names[close[0]]}?")
        raise JaasError(f"{LoginModule.KERBEROS.value} has an option that is not one of {', '.join(_ALL)}")


def _truth(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name, "false")
    try:
        return _TRUTHS[value.lower()]
    except KeyError:
        raise JaasError(f"the option {name} is true or false") from None


def _path(value: str | None) -> str | None:
    for prefix in _PREFIXES:
        if value and value.startswith(prefix):
            return value[len(prefix) :]
    return value or None


def _service_name(in_line: str | None, in_property: str | None) -> str:
    if in_line and in_property and in_line != in_property:
        raise JaasError(f"serviceName is {in_line}, and sasl.kerberos.service.name is {in_property}")
    name = in_line or in_property
    if not name:
        raise JaasError("sasl.kerberos.service.name is not set: it is the first part of brokers' principals, as kafka")
    if "@" in name or "/" in name:
        raise JaasError("sasl.kerberos.service.name is the first part of brokers' principals alone")
    return name


@dataclass(frozen=True, slots=True)
class RenewalRules:
    """When tickets are renewed; seconds."""

    window_factor: float
    """The share of a ticket's time after which it is to be renewed."""
    jitter: float
    """The largest random share added to that."""
    min_between: float
    """Seconds between two attempts, at least, as long as there is a ticket that has not ended."""
    kinit: str
    """The command that renews the tickets of a cache."""

    @classmethod
    def of(cls, settings: Settings) -> RenewalRules:
        """The rules of the properties ``sasl.kerberos.*``."""
        return cls(
            float(settings["sasl.kerberos.ticket.renew.window.factor"]),
            float(settings["sasl.kerberos.ticket.renew.jitter"]),
            int(settings["sasl.kerberos.min.time.before.relogin"]) / 1000,
            str(settings["sasl.kerberos.kinit.cmd"]),
        )

    def renew_at(self, now: float, lifetime: float, chance: float) -> float:
        """When a ticket is due to be renewed that is taken now and lasts ``lifetime``; ``chance`` is from 0 to 1."""
        due = now + lifetime * (self.window_factor + self.jitter * chance)
        # Never after its end; but not too often, unless it ends before that.
        return min(now + lifetime, max(due, now + self.min_between))
