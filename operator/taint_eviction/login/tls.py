"""The TLS context of new connections: authorities and the client's certificate, read again when they change.

Files are looked at before requests, at most every few seconds, and at once after a server or a certificate was refused.
Open connections stay as they were made. What cannot be read leaves the context as it is.

Keys stay in memory: Python's ``ssl`` loads certificates from files only, so they are handed over in a file that has no
name. This module makes no connections (``sessions``) and finds no files (``credentials``).
"""

import contextlib
import logging
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from taint_eviction.core.text import one_line
from taint_eviction.login.token_sources import CredentialsError
from taint_eviction.runtime.ports import Clock

logger = logging.getLogger(__name__)

# Files are looked at again after this time.
_FILE_SECONDS = 3.0
# A failure that lasts is logged again after this time.
_REPEAT_SECONDS = 60.0
# A certificate that ends this soon, or in the last twentieth of its life if that is shorter, is told.
_SOON_SECONDS = 7 * 86_400.0
_SOON_SHARE = 0.05

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class TlsFiles(NamedTuple):
    """What a context is made of, as PEM. ``authorities`` None: those of the system. ``certificate``, ``key``: None if
    the client has none. ``verifies`` False: any server is accepted. ``paths``: the files that this was read from.
    """

    authorities: str | None
    certificate: str | None = None
    key: str | None = None
    verifies: bool = True
    paths: Sequence[Path] = ()


class Life(NamedTuple):
    """When a certificate begins and ends, in seconds since the epoch."""

    begins_epoch: float
    ends_epoch: float


class CurrentTls:
    """The context for new connections. ``read`` returns what the files have now, or raises ``CredentialsError``."""

    def __init__(self, read: Callable[[], TlsFiles], clock: Clock) -> None:
        self._read = read
        self.clock = clock
        self._given: tuple[str, str] | None = None
        self._failed_at: float | None = None
        self.failures = 0
        self._files = read()
        self._context = make_context(self._files)
        self._stamp = _stamp(self._files.paths)
        self._looked_at = clock.now().at

    def current(self) -> ssl.SSLContext:
        """Return the context; another object after a change, so that no connection from before is used with it."""
        now = self.clock.now().at
        if now - self._looked_at >= _FILE_SECONDS:
            self._looked_at = now
            self._look(now)
        return self._context

    def refused(self) -> None:
        """Note that a server's certificate, or the credentials, were refused: the files are looked at again at once."""
        self._looked_at = float("-inf")

    def give(self, certificate: str, key: str) -> None:
        """Use a client certificate that no file has: an exec plugin has returned it. Raises ``CredentialsError``."""
        if (certificate, key) != self._given:
            self._context = make_context(self._files._replace(certificate=certificate, key=key))
            self._given = certificate, key

    def lives(self) -> Mapping[str, Life]:
        """Return the life of the client's certificate (``client``), and of the authority that ends last."""
        certificate = self._files.certificate if self._given is None else self._given[0]
        lives = {}
        if certificate is not None and (found := list(_lives(certificate))):
            lives["client"] = found[0]
        if self._files.authorities is not None and (found := list(_lives(self._files.authorities))):
            lives["authority"] = max(found, key=lambda life: life.ends_epoch)
        return lives

    def _look(self, now: float) -> None:
        stamp = _stamp(self._files.paths)
        if stamp == self._stamp and self._failed_at is None:
            return
        try:
            files = self._read()
            if files != self._files:
                certificate, key = self._given or (files.certificate, files.key)
                self._context = make_context(files._replace(certificate=certificate, key=key))
                logger.info("certificates have changed: new connections use the new ones")
        except CredentialsError as error:
            self.failures += 1
            if self._failed_at is None or now - self._failed_at >= _REPEAT_SECONDS:
                logger.warning("certificates cannot be read again, the last ones stay in use: %s", error)
                self._failed_at = now
            return
        self._files, self._failed_at = files, None
        self._stamp = stamp if files.paths == self._files.paths else _stamp(files.paths)


def make_context(files: TlsFiles) -> ssl.SSLContext:
    """Make a context; raise ``CredentialsError`` if the certificates cannot be used."""
    if files.authorities is not None and not files.authorities.strip():
        # Python would take those of the system instead.
        raise CredentialsError("its certificates cannot be used: the certificate authority is empty")
    try:
        context = ssl.create_default_context(cadata=files.authorities)
        # Many clusters have certificate authorities without key identifiers. Go accepts them, Python 3.13 does not.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if files.certificate is not None and files.key is not None:
            with _nameless(f"{files.certificate}\n{files.key}\n") as path:
                # An encrypted key must not ask a person for its password.
                context.load_cert_chain(path, password="")
    except (OSError, ValueError) as error:
        raise CredentialsError(f"its certificates cannot be used: {one_line(error)}") from error
    if not files.verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def soon(life: Life, now_epoch: float) -> bool:
    """Return whether a certificate ends soon, or has ended."""
    return life.ends_epoch - now_epoch < min(_SOON_SECONDS, _SOON_SHARE * (life.ends_epoch - life.begins_epoch))


@contextlib.contextmanager
def _nameless(text: str) -> Iterator[str]:
    """Keep text in memory as a file, which only this process can open."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    # Other systems than Linux have no such files.
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        yield file.name


def _stamp(paths: Sequence[Path]) -> tuple[tuple[int, int, int] | None, ...]:
    """Return what changes when one of the files is replaced or written."""
    stamps: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((found.st_mtime_ns, found.st_ino, found.st_size))
    return tuple(stamps)


# Reading the life of a certificate. Python's ssl tells it of authorities only.


def _lives(pem: str) -> Iterator[Life]:
    """Yield the lives of the certificates in a PEM; what cannot be read is left out."""
    for text in _PEM.findall(pem):
        with contextlib.suppress(ValueError, IndexError):
            yield _life(ssl.PEM_cert_to_DER_cert(text))


def _life(der: bytes) -> Life:
    """Read ``Validity`` of a certificate (RFC 5280, 4.1)."""
    (_, certificate), *_ = _elements(der)
    (_, signed), *_ = _elements(certificate)
    fields = [each for each in _elements(signed) if each[0] != 0xA0]  # without the version, which is optional
    begins, ends = (_time(tag, value.decode("ascii")) for tag, value in _elements(fields[3][1]))
    return Life(begins, ends)


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of the elements of a DER value, one after the other."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length >= 0x80:
            size = length - 0x80
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        yield tag, der[at : at + length]
        at += length


def _time(tag: int, text: str) -> float:
    """Read a UTCTime (years 1950 to 2049) or a GeneralizedTime."""
    if tag == 0x17:
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
