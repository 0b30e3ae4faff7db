"""The authorizer of a node, by its properties."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

from kbroker.config import BrokerConfig
from kbroker.config.security.authorization import SUPER_USERS, allows_everyone
from kbroker.errors import FatalError
from kbroker.security.authorizer.standard import StandardAuthorizer
from kbroker.security.principal import KafkaPrincipal, parse_principal

logger = logging.getLogger(__name__)


def standard_authorizer(config: BrokerConfig) -> StandardAuthorizer:
    """An authorizer that knows no ACLs yet (``StandardAuthorizer.configure``). ``FatalError`` for a super user that is
    no principal."""
    return StandardAuthorizer(
        super_users=_super_users(config.raw.get(SUPER_USERS, "")),
        allow_everyone=allows_everyone(config),
    )


def _super_users(text: str) -> Iterator[KafkaPrincipal]:
    """``User:a;User:b``. Names may have commas, as those of certificates do."""
    for each in filter(None, map(str.strip, text.split(";"))):
        try:
            yield parse_principal(each)
        except ValueError as error:
            raise FatalError(f"{SUPER_USERS}: {error}") from None
        if re.search(r",\s*User:", each):
            logger.warning("super.users: %s is one name: several are separated by semicolons", each)
