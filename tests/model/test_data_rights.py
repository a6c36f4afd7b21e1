"""Who may do what with the data of a team: everybody, with every domain."""

import itertools

import pytest

from towline.errors import NotFound, UsageError
from towline.model.principal import NOBODY, Principal
from towline.model.team.data import (
    ACCESS,
    SHARED,
    DataAccess,
    DataDomain,
    DomainKind,
    Relation,
    access,
    data_variables,
    domain_of,
)

NAMES = ("ann", "ben")
GROUPS = ("staff", "guests")
PEOPLE = [
    Principal(name, frozenset(some), administrator)
    for name in NAMES
    for many in range(3)
    for some in itertools.combinations(GROUPS, many)
    for administrator in (False, True)
]
DOMAINS = [
    SHARED,
    *(DataDomain(DomainKind.GROUP, group) for group in GROUPS),
    *(DataDomain(DomainKind.USER, name) for name in NAMES),
]


def by_the_readme(who: Principal, domain: DataDomain) -> DataAccess:
    """The ancestor's four sentences, written once more."""
    if who == NOBODY:
        return DataAccess.NONE
    if domain == SHARED:
        return DataAccess.READ
    mine = domain.name == who.name if domain.kind is DomainKind.USER else domain.name in who.groups
    return DataAccess.WRITE if mine or who.administrator else DataAccess.NONE


@pytest.mark.parametrize("who", [NOBODY, *PEOPLE])
def test_everybody_has_the_rights_that_the_domains_give_them(who: Principal) -> None:
    assert [access(who, domain) for domain in DOMAINS] == [
        by_the_readme(who, domain) for domain in DOMAINS
    ]


def test_the_table_has_a_row_for_every_kind_and_everybody() -> None:
    assert set(ACCESS) == set(itertools.product(DomainKind, Relation))
    writers = {at for at, has in ACCESS.items() if has is DataAccess.WRITE}
    assert writers == {
        (DomainKind.GROUP, Relation.ADMINISTRATOR),
        (DomainKind.GROUP, Relation.MEMBER),
        (DomainKind.USER, Relation.ADMINISTRATOR),
        (DomainKind.USER, Relation.OWNER),
    }


def test_domains_are_named_as_people_type_them() -> None:
    ann = Principal("ann")
    assert domain_of("home", ann) == domain_of("user:~", ann) == domain_of("user:ann", ann)
    assert domain_of("shared", ann) is SHARED
    assert str(domain_of("group:staff", ann)) == "group:staff"
    for wrong in ("", "attic", "job:1", "shared:x", "home:ann"):
        with pytest.raises(NotFound):
            domain_of(wrong, ann)
    for odd in ("group:", "user:..", "group:a/b", "user:Ann", "group:a\0", "user:" + "a" * 33):
        with pytest.raises(UsageError):
            domain_of(odd, ann)


def test_a_job_is_told_of_what_its_owner_has_and_of_nothing_else() -> None:
    assert data_variables("/nfs/pit/", "ann", {"staff", "guests"}) == {
        "SHARED_DIR": "/nfs/pit/shared",
        "GUESTS_GROUP_DIR": "/nfs/pit/groups/guests",
        "STAFF_GROUP_DIR": "/nfs/pit/groups/staff",
        "USER_DIR": "/nfs/pit/home/ann",
    }
