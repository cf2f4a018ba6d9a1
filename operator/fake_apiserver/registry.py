"""Creating, updating and patching objects: the rules between a request and the store.

All of it is synchronous, so that a write is atomic on the loop. Reference: apiserver/pkg/registry/generic/registry
and the strategies of the kinds. Deleting, evicting and binding have modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .clock import WallClock
from .defaults import Admission, Identities, complete_conditions, complete_metadata
from .ownership import Manager, track
from .records import StoredObject, record_of
from .resources import ResourceType
from .status import (
    MODIFIED_MEANWHILE,
    FieldError,
    JsonObject,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
)
from .store import ObjectStore
from .strategies import (
    WriteOptions,
    admit,
    check_shape,
    create_errors,
    drop_empty_lists,
    prepare_create,
    reset_fields,
    restore_system_metadata,
    update_errors,
)
from .validation import metadata_update_errors, name_errors, refused, required

__all__ = ["Registry", "WriteOptions"]


@dataclass(slots=True)
class Registry:
    """The API's write rules over one store."""

    store: ObjectStore
    clock: WallClock
    admission: Admission = field(default_factory=Admission)
    identities: Identities = field(default_factory=Identities)

    def get(self, resource: ResourceType, namespace: str, name: str) -> StoredObject:
        """The current record; raises 404."""
        record = self.store.get(resource.plural, namespace, name)
        if record is None:
            raise not_found(resource.group, resource.plural, name)
        return record

    def create(self, resource: ResourceType, namespace: str, obj: JsonObject, options: WriteOptions) -> StoredObject:
        """Completes, checks and stores a new object, which this function may change; raises 409 where it exists."""
        self._check_head(resource, namespace, obj)
        metadata = obj["metadata"] = obj.get("metadata") or {}
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                missing = required("metadata.name", "name or generateName is required")
                raise invalid(resource.group, resource.kind, "", [missing])
            metadata["name"] = metadata["generateName"] + self.identities.suffix()
        name = metadata["name"]
        if metadata.get("resourceVersion"):
            # The real server does not take this for the client's mistake.
            raise StatusError(500, "resourceVersion should not be set on objects to be created", reason="")
        uid = self._uid_of(namespace, metadata, options)
        complete_metadata(obj, resource, namespace, uid, self.clock.timestamp())
        prepare_create(resource, obj, options)
        if options.track_fields:
            self._track(resource, None, obj, options)
        admit(resource, obj, self.admission, is_new=True)
        self._refuse(resource, name, name_errors(name) + create_errors(resource, obj, self.admission))
        if self.store.get(resource.plural, namespace, name) is not None:
            raise already_exists(resource.group, resource.plural, name)
        if options.dry_run:
            return record_of(resource, obj)
        return self.store.commit(resource, obj)

    def _uid_of(self, namespace: str, metadata: Mapping[str, str], options: WriteOptions) -> str:
        """Tests may choose a uid; clients may not."""
        given = metadata.get("uid")
        return given if given and options.keep_status else self.identities.uid(namespace, metadata["name"])

    @staticmethod
    def _check_head(resource: ResourceType, namespace: str, obj: JsonObject) -> None:
        check_shape(resource, obj)
        given = (obj.get("metadata") or {}).get("namespace")
        if resource.namespaced and given and given != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")

    @staticmethod
    def _refuse(resource: ResourceType, name: str, errors: list[FieldError]) -> None:
        if errors:
            raise invalid(resource.group, resource.kind, name, errors)

    def _track(self, resource: ResourceType, old: JsonObject | None, new: JsonObject, options: WriteOptions) -> None:
        manager = Manager(options.manager, resource.api_version, options.subresource)
        track(old, new, manager, self.clock.timestamp(), status_is_reset=resource.has_status)

    def update(
        self, resource: ResourceType, namespace: str, name: str, obj: JsonObject, options: WriteOptions
    ) -> tuple[StoredObject, bool]:
        """A PUT; the second of the pair says whether it created the object, which some kinds allow."""
        self._check_head(resource, namespace, obj)
        metadata = obj["metadata"] = obj.get("metadata") or {}
        if metadata.get("name") != name:
            raise _name_mismatch(metadata.get("name", ""), name)
        record = self.store.get(resource.plural, namespace, name)
        if record is None:
            if not resource.create_on_update or options.subresource:
                raise not_found(resource.group, resource.plural, name)
            metadata.pop("resourceVersion", None)
            return self.create(resource, namespace, obj, options), True
        self._check_uid_precondition(record, metadata.get("uid"))
        version = metadata.get("resourceVersion")
        if not version and not resource.unconditional_update:
            missing = refused("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(resource.group, resource.plural, name, [missing])
        if version and version != str(record.resource_version):
            raise conflict(resource.group, resource.plural, name, MODIFIED_MEANWHILE)
        metadata.setdefault("uid", record.uid)
        return self.replace(record, obj, options), False

    @staticmethod
    def _check_uid_precondition(record: StoredObject, uid: str | None) -> None:
        """Of a PUT: another uid is a conflict there, while in a patch it is an immutable field."""
        if uid and uid != record.uid:
            resource = record.resource
            key = f"/registry/{resource.storage_prefix or resource.plural}/{record.key}"
            why = (
                f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}"
            )
            raise conflict(resource.group, resource.plural, record.name, why)

    def patch(
        self, record: StoredObject, change: Callable[[JsonObject], JsonObject], options: WriteOptions
    ) -> StoredObject:
        """Applies a patch function to the current object; a resourceVersion in the result is a precondition."""
        obj = change(record.decode())
        check_shape(record.resource, obj)
        metadata = obj.get("metadata") or {}
        if metadata.get("resourceVersion") not in (None, "", str(record.resource_version)):
            raise conflict(record.resource.group, record.resource.plural, record.name, MODIFIED_MEANWHILE)
        if metadata.get("name") != record.name:
            raise _name_mismatch(metadata.get("name", ""), record.name)
        return self.replace(record, obj, options)

    def replace(self, record: StoredObject, obj: JsonObject, options: WriteOptions) -> StoredObject:
        """Checks and stores a new version of an object; nothing is written where nothing changed."""
        resource, old = record.resource, record.decode()
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, **obj}
        # Twice, as `update_errors` does.
        errors = 2 * metadata_update_errors(obj["metadata"], old["metadata"])
        restore_system_metadata(obj["metadata"], old["metadata"])
        drop_empty_lists(resource, obj)
        reset_fields(resource, obj, old, options)
        complete_conditions(obj, resource)
        if options.track_fields:
            self._track(resource, old, obj, options)
        if not options.subresource and not options.keep_status:
            admit(resource, obj, self.admission, is_new=False)
        errors += update_errors(resource, obj, old, options, self.admission)
        self._refuse(resource, record.name, errors)
        if resource.has_generation and obj.get("spec") != old.get("spec"):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if _same_but_for_times(obj, old):
            return record
        if options.dry_run:
            return record_of(resource, obj)
        return self._store_or_finish_deletion(obj, record)

    def _store_or_finish_deletion(self, obj: JsonObject, record: StoredObject) -> StoredObject:
        """An object whose deletion waited for finalizers goes with the last of them."""
        metadata = obj["metadata"]
        is_due = "deletionTimestamp" in metadata and not metadata.get("deletionGracePeriodSeconds")
        if is_due and not metadata.get("finalizers"):
            # As in the real server, the write that empties the finalizers is not stored by itself.
            self.store.remove(record)
            return record_of(record.resource, obj)
        return self.store.commit(record.resource, obj)


def _name_mismatch(given: str, in_url: str) -> StatusError:
    return bad_request(f"the name of the object ({given}) does not match the name on the URL ({in_url})")


def _same_but_for_times(new: JsonObject, old: JsonObject) -> bool:
    """Whether two objects differ in nothing but the times in managedFields, which make no write by themselves."""

    def timeless(obj: JsonObject) -> JsonObject:
        entries = obj["metadata"].get("managedFields") or []
        bare = [{k: v for k, v in entry.items() if k != "time"} for entry in entries]
        return {**obj, "metadata": {**obj["metadata"], "managedFields": bare}}

    return timeless(new) == timeless(old)
