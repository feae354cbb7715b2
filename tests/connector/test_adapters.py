"""An adapter's identity is its contents when first met, and doubt is for good."""

import pytest

from kvext.connector.adapters import AdapterBook, AdapterRef
from kvext.connector.edge import Edge
from kvext.connector.identity import DigestQueue, Identity, IdentityState
from kvext.connector.namespaces import NamespaceBook, Subject
from kvext.errors import IdentityUnknown
from kvext.protocol.digest import WeightsSnapshot
from kvext.protocol.digest_cache import FileIdentity
from kvext.protocol.layout import KVLayout

LAYOUT = KVLayout("float32", 4, 4, 32, "test")


class Disk:
    """Adapter folders by path: contents and a change counter."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {"/a": b"A" * 32, "/b": b"B" * 32}
        self.changes: dict[str, int] = {}

    def change(self, path: str, contents: bytes) -> None:
        self.contents[path] = contents
        self.changes[path] = self.changes.get(path, 0) + 1

    def snapshot(self, path: str) -> WeightsSnapshot:
        if path not in self.contents:
            raise IdentityUnknown(path, "the adapter is not a local folder")
        changes = self.changes.get(path, 0)
        return (("adapter_model.safetensors", FileIdentity(1, ord(path[1]), 32, 0, changes)),)

    def digest(self, path: str) -> bytes:
        return self.contents[path]


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def queue() -> DigestQueue:
    return DigestQueue(Edge())


@pytest.fixture
def book(disk: Disk, queue: DigestQueue) -> AdapterBook:
    return AdapterBook(queue, disk.snapshot, disk.digest)


def settle(queue: DigestQueue) -> None:
    """Wait until the queue has done everything before this."""
    queue.submit(lambda: b"").wait(10)


def resolve(book: AdapterBook, queue: DigestQueue, ref: AdapterRef) -> Identity:
    book.resolve(ref)
    settle(queue)
    return book.resolve(ref).identity


def test_an_adapter_is_pending_and_then_known(book: AdapterBook, queue: DigestQueue) -> None:
    ref = AdapterRef(1, "a", "/a")
    book.resolve(ref)
    settle(queue)
    found = book.resolve(ref)
    assert found.identity == Identity.known(b"A" * 32)
    assert found.guard is not None
    assert found.guard.adapter_id == 1


def test_files_that_change_under_a_number_make_it_unknown_for_good(
    disk: Disk, book: AdapterBook, queue: DigestQueue
) -> None:
    ref = AdapterRef(1, "a", "/a")
    assert resolve(book, queue, ref).state is IdentityState.KNOWN
    disk.change("/a", b"C" * 32)
    assert resolve(book, queue, ref).state is IdentityState.UNKNOWN
    disk.changes.clear()
    assert resolve(book, queue, ref).state is IdentityState.UNKNOWN


def test_a_number_that_stands_for_another_adapter_is_unknown(
    book: AdapterBook, queue: DigestQueue
) -> None:
    assert resolve(book, queue, AdapterRef(1, "a", "/a")).state is IdentityState.KNOWN
    assert resolve(book, queue, AdapterRef(1, "b", "/b")).state is IdentityState.UNKNOWN


def test_a_name_that_stands_for_other_files_is_unknown_under_a_new_number_too(
    disk: Disk, book: AdapterBook, queue: DigestQueue
) -> None:
    assert resolve(book, queue, AdapterRef(1, "a", "/a")).state is IdentityState.KNOWN
    disk.change("/a", b"C" * 32)
    assert resolve(book, queue, AdapterRef(2, "a", "/a")).state is IdentityState.UNKNOWN


def test_the_same_files_under_a_new_number_are_known(book: AdapterBook, queue: DigestQueue) -> None:
    assert resolve(book, queue, AdapterRef(1, "a", "/a")).state is IdentityState.KNOWN
    found = book.resolve(AdapterRef(2, "a", "/a"))
    assert found.identity == Identity.known(b"A" * 32)
    assert found.guard is not None
    assert found.guard.adapter_id == 2


def test_an_adapter_that_is_no_local_folder_is_unknown_with_a_reason(
    book: AdapterBook, queue: DigestQueue
) -> None:
    identity = resolve(book, queue, AdapterRef(1, "hub", "org/adapter"))
    assert identity.state is IdentityState.UNKNOWN
    assert "org/adapter" in identity.reason


class Labels:
    """What a namespace book has announced."""

    def __init__(self, model: Identity, adapters: AdapterBook) -> None:
        self.seen: dict[bytes, str] = {}
        self.models: list[bytes] = []
        self.count = 0
        self.is_reachable = True
        self.book = NamespaceBook(lambda: model, LAYOUT, adapters, "tiny", self.note)

    def note(self, digest: bytes, label: str, model: bytes) -> bool:
        self.seen[digest] = label
        self.models.append(model)
        self.count += 1
        return self.is_reachable


def test_model_adapter_and_domain_each_have_a_namespace_of_their_own(
    book: AdapterBook, queue: DigestQueue
) -> None:
    adapter = AdapterRef(1, "a", "/a")
    resolve(book, queue, adapter)
    labels = Labels(Identity.known(b"m" * 32), book)
    subjects = [Subject(), Subject(adapter), Subject(None, "salt"), Subject(adapter, "salt")]
    digests = [labels.book.resolve(subject).identity.digest for subject in subjects]
    assert len(set(digests)) == 4
    assert [labels.book.resolve(subject).identity.digest for subject in subjects] == digests
    assert labels.count == 4
    assert sorted(labels.seen.values()) == [
        "tiny",
        "tiny / a",
        "tiny / a / salted",
        "tiny / salted",
    ]


def test_a_namespace_is_announced_with_its_models_digest_until_it_was_heard(
    book: AdapterBook,
) -> None:
    labels = Labels(Identity.known(b"m" * 32), book)
    labels.is_reachable = False
    digests = [labels.book.resolve(Subject()).identity.digest for _ in range(2)]
    labels.is_reachable = True
    digests += [labels.book.resolve(Subject()).identity.digest for _ in range(2)]
    assert len(set(digests)) == 1
    assert labels.models == [b"m" * 32] * 3


def test_an_unknown_model_has_no_namespace(book: AdapterBook) -> None:
    labels = Labels(Identity.unknown("dummy weights"), book)
    assert labels.book.resolve(Subject()).identity == Identity.unknown("dummy weights")
    assert not labels.seen


def test_a_digest_that_fails_leaves_the_queue_alive(queue: DigestQueue) -> None:
    def fail() -> bytes:
        raise RuntimeError("disk on fire")

    assert queue.submit(fail).wait(10).state is IdentityState.UNKNOWN
    assert queue.submit(lambda: b"x").wait(10) == Identity.known(b"x")
