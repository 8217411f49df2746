use super::*;
use crate::key;

fn at(host: &str, port: u16) -> Location {
    Location { host: host.into(), port }
}

#[test]
fn every_slot_has_a_tag() {
    for slot in [0, 1, 5461, 16383] {
        assert_eq!(slot_of(&key::mark_key(Some(&tag_of(slot)))), slot);
    }
    for tag in ["0", "f", "10", "abc"] {
        assert!(tag_of(slot_of(tag)).len() <= tag.len(), "the first in order");
    }
}

/// All clients of a cluster leave and read its marks under the same keys.
#[test]
fn the_tag_of_a_slot_stays_the_same() {
    for (slot, tag) in [(0, "265b"), (5461, "1a6f"), (13907, "0"), (16383, "3d43")] {
        assert_eq!(tag_of(slot), tag);
    }
}

#[test]
fn a_key_has_the_slot_of_its_hash_tag() {
    // As CLUSTER KEYSLOT answers.
    for (key, slot) in [
        ("123456789", 0x31c3),
        ("foo", 12182),
        ("{foo}", 12182),
        ("a{foo}b", 12182),
        ("a{foo}{bar}", 12182),
        ("{}foo", 9500),
        ("foo{}{bar}", 8363),
        ("foo{{bar}}", 4015),
        ("", 0),
    ] {
        assert_eq!(slot_of(key), slot, "{key}");
    }
    assert_eq!(slot_of("foo{{bar}}"), slot_of("{{bar}"), "the tag is `{{bar`");
}

#[test]
fn the_keys_of_a_lock_are_in_one_slot() {
    for name in ["n", "a:{b}:c", "ä b"] {
        let slot = slot_of(name);
        assert_eq!(slot_of(&key::token_key(name, false)), slot);
        assert_eq!(slot_of(&key::queue_key(name)), slot);
        assert_eq!(slot_of(&key::channel(name)), slot);
    }
}

fn read(wire: &str) -> Option<SlotMap> {
    fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Reply {
        match words.next().expect("a whole text") {
            "(" => {
                let mut list = Vec::new();
                loop {
                    match parse(words) {
                        Reply::Text(end) if end == ")" => return Reply::List(list),
                        item => list.push(item),
                    }
                }
            }
            "nil" => Reply::Nil,
            "''" => Reply::Text(String::new()),
            word => word.parse().map_or_else(|_| Reply::Text(word.to_owned()), Reply::Number),
        }
    }
    SlotMap::read(&parse(&mut wire.split(' ')), &at("here", 7))
}

#[test]
fn a_map_is_read_from_the_ranges_of_the_masters() {
    let map = "( ( 0 99 ( a 1 id ( hostname x ) ) ( replica 2 id ) ) ( 100 16383 ( b 1 id ) ) )";
    let map = read(map).expect("well formed");
    let owners = [0, 99, 100, 16383].map(|slot| map.owner(slot).expect("covered").to_string());
    assert_eq!(owners, ["a:1", "a:1", "b:1", "b:1"]);
    assert!(map.is_covered() && map.owner(16384).is_none());
    assert_eq!(map.owned_by(&at("b", 1)).ranges, [(100, 16383)]);
    assert_eq!(map.owned_by(&at("replica", 2)), Owned::default());
    let masters: Vec<_> = map.masters().into_iter().map(Location::to_string).collect();
    assert_eq!(masters, ["a:1", "b:1"]);
    let gaps = "( ( 0 0 ( nil 1 ) ) ( 1 1 ( '' 2 ) ) ( 2 2 ( ? 3 ) ) ( 3 3 ( a 0 ) ) )";
    let gaps = read(gaps).expect("well formed");
    assert_eq!(gaps.owner(0), Some(&at("here", 1)), "without a host it is the one that answered");
    assert_eq!(gaps.owner(1), Some(&at("here", 2)));
    assert_eq!((gaps.owner(2), gaps.owner(3)), (None, None), "it does not know");
    assert!(!gaps.is_covered());
    assert_eq!(read("( )"), Some(SlotMap::default()));
    for odd in ["x", "( x )", "( ( 0 1 ) )", "( ( 0 16384 ( a 1 ) ) )", "( ( 9 1 ( a 1 ) ) )"] {
        assert_eq!(read(odd), None, "{odd}");
    }
    for odd in ["( ( 0 1 ( a ) ) )", "( ( x 1 ( a 1 ) ) )", "( ( 0 1 ( a 70000 ) ) )"] {
        assert_eq!(read(odd), None, "{odd}");
    }
}

#[test]
fn of_the_slots_that_tell_a_master_most_stay_when_some_of_them_move() {
    let map = |wire| read(wire).expect("well formed");
    let [a, b] = [at("a", 1), at("b", 1)];
    let before = map("( ( 0 9999 ( a 1 ) ) ( 10000 16383 ( b 1 ) ) )");
    let after = map("( ( 0 1999 ( b 1 ) ) ( 2000 9999 ( a 1 ) ) ( 10000 16383 ( b 1 ) ) )");
    for master in [&a, &b] {
        let [before, after] = [&before, &after].map(|map| map.owned_by(master));
        assert_eq!((before.tags.len(), after.tags.len()), (3, 3));
        let stay = before.tags.iter().filter(|tag| after.tags.contains(tag)).count();
        assert!(stay >= 2, "{:?} {:?}", before.tags, after.tags);
    }
    assert_eq!(after.owned_by(&b).ranges, [(0, 1999), (10000, 16383)]);
    for tag in after.owned_by(&b).tags {
        assert_eq!(after.owner(slot_of(&key::mark_key(Some(&tag)))), Some(&b));
    }
    let one = map("( ( 7 7 ( a 1 ) ) )").owned_by(&a);
    assert_eq!((&*one.ranges, one.tags), (&[(7, 7)][..], vec![tag_of(7)]));
}

#[test]
fn a_redirect_without_a_host_leads_to_the_host_that_answered() {
    let from = at("here", 7);
    for (text, to) in [
        ("a:1", Some(at("a", 1))),
        (":1", Some(at("here", 1))),
        ("::1:6379", Some(at("::1", 6379))),
        ("?:1", None),
        ("a", None),
        ("a:x", None),
    ] {
        assert_eq!(Location::of_redirect(text, &from), to, "{text}");
    }
}

#[test]
fn a_map_is_corrected_slot_by_slot_and_replaced_by_a_newer_one() {
    let mut map = read("( ( 0 16383 ( a 1 ) ) )").expect("well formed");
    assert!(!map.learn(5, &at("a", 1)) && !map.learn(16384, &at("b", 1)));
    assert!(map.learn(5, &at("b", 1)));
    assert_eq!((map.owner(5), map.owner(6)), (Some(&at("b", 1)), Some(&at("a", 1))));
    let same = read("( ( 0 4 ( a 1 ) ) ( 5 5 ( b 1 ) ) ( 6 16383 ( a 1 ) ) )");
    assert!(!map.renew(&same.expect("well formed")));
    let without = read("( ( 0 4 ( c 1 ) ) ( 6 16383 ( a 1 ) ) )").expect("well formed");
    assert!(map.renew(&without));
    assert_eq!((map.owner(0), map.owner(5)), (Some(&at("c", 1)), Some(&at("b", 1))));
    assert!(!map.renew(&without) && map.is_covered(), "it keeps who owned the slot last");
    let first = read("( ( 1 16383 ( a 1 ) ) )").expect("well formed");
    assert!(map.renew(&first));
    assert_eq!(map.owner(0), Some(&at("c", 1)), "the first slot keeps it, too");
    assert!(SlotMap::default().renew(&map));
}

#[test]
fn however_many_masters_are_named_no_more_are_kept_than_there_are_slots() {
    let mut map = read("( ( 0 16383 ( a 1 ) ) )").expect("well formed");
    map.masters.extend((1..SLOTS).map(|number| at(&format!("m{number}"), 1)));
    for number in 0..3 {
        assert!(map.learn(7, &at("new", number + 1)));
    }
    assert_eq!(map.masters.len(), SLOTS + 1);
    assert_eq!((map.owner(7), map.owner(8)), (Some(&at("new", 3)), Some(&at("a", 1))));
    assert_eq!(map.masters().len(), 2);
}

/// A node says that all slots are at `host`.
fn view(host: &str, is_ok: bool, epoch: u64) -> View {
    let map = read(&format!("( ( 0 16383 ( {host} 1 ) ) )")).expect("well formed");
    View { map, is_ok, epoch }
}

/// Returns the host that the view names which is chosen `seconds` after the start.
fn chosen(latest: &mut Latest, views: &[View], seconds: u64) -> Option<String> {
    let view = latest.choose(views, Timestamp::from_origin(Duration::from_secs(seconds)));
    view.map(|view| view.map.owner(0).expect("covered").host.to_string())
}

#[test]
fn the_map_of_a_node_that_is_cut_off_is_not_followed() {
    let best_of = |views: &[View]| chosen(&mut Latest::default(), views, 0);
    assert_eq!(best_of(&[]), None);
    let [a, b] = ["a", "b"];
    for (views, expected) in [
        (vec![view(a, true, 3), view(b, false, 9)], a),
        (vec![view(a, true, 3), view(a, true, 3), view(b, true, 4)], b),
        (vec![view(b, true, 3), view(a, true, 3), view(b, true, 3)], b),
        (vec![view(b, true, 0), view(a, true, 0), view(a, true, 0)], a),
        (vec![view(a, false, 1)], a),
    ] {
        assert_eq!(best_of(&views).as_deref(), Some(expected));
    }
}

#[test]
fn nodes_agree_in_whatever_order_they_name_the_slots() {
    let [ab, ba] =
        ["( ( 0 7 ( a 1 ) ) ( 8 16383 ( b 1 ) ) )", "( ( 8 16383 ( b 1 ) ) ( 0 7 ( a 1 ) ) )"];
    let view = |wire| View { map: read(wire).expect("well formed"), is_ok: true, epoch: 0 };
    assert!(view(ab).map == view(ba).map);
    let views = [view(ab), view(ba), view("( ( 0 16383 ( a 1 ) ) )")];
    let best = Latest::default().choose(&views, Timestamp::default());
    let best = best.map(|best| best.map.owner(8));
    assert_eq!(best, Some(Some(&at("b", 1))), "two of three say so");
}

#[test]
fn a_map_that_is_behind_an_earlier_one_is_not_followed() {
    let mut latest = Latest::default();
    let [a, b] = ["a", "b"];
    for (seconds, view, expected) in [
        (100, view(a, true, 7), Some(a)),
        (105, view(b, true, 6), None),
        (106, view(b, false, 6), None),
        (110, view(b, true, 7), Some(b)),
        // It may have asked in vain to take over.
        (115, view(a, false, 9), Some(a)),
        (116, view(b, true, 7), Some(b)),
        (145, view(a, true, 6), None),
        // Nobody has named that change for half a minute.
        (146, view(a, true, 2), Some(a)),
        (147, view(b, true, 1), None),
    ] {
        assert_eq!(chosen(&mut latest, &[view], seconds).as_deref(), expected, "{seconds}");
    }
}
