use super::*;

fn note(order: &mut Order, held: &str, wanted: &str) -> Option<String> {
    let at = Location::caller();
    let (held, wanted) = (Taken { name: held, at }, Taken { name: wanted, at });
    let circle = order.note(held, wanted)?;
    assert_eq!((&*circle[0].held, &*circle[0].wanted), (held.name, wanted.name));
    let parts = circle[1..].iter().map(|pair| format!("{}>{}", pair.held, pair.wanted));
    Some(parts.collect::<Vec<_>>().join(" "))
}

fn notes(order: &mut Order, pairs: &[(&str, &str)]) -> Vec<Option<String>> {
    pairs.iter().map(|(held, wanted)| note(order, held, wanted)).collect()
}

#[test]
fn what_closes_a_circle_is_told_once_with_all_others() {
    let mut order = Order::default();
    let told = notes(&mut order, &[("a:1", "b:1"), ("b:2", "c"), ("a:9", "c"), ("c", "d:7")]);
    assert!(told.iter().all(Option::is_none), "{told:?}");
    assert_eq!(note(&mut order, "c", "a:5").as_deref(), Some("a:9>c"), "the fewest");
    assert_eq!(note(&mut order, "c", "a:6"), None, "it was told");
    assert_eq!(note(&mut order, "d:1", "b:5").as_deref(), Some("b:2>c c>d:7"));
    assert_eq!(note(&mut order, "a:1", "b:3"), None, "the others are in order");
    assert_eq!(note(&mut order, "a:1", "a:1"), None, "it re-enters");
}

#[test]
fn within_a_class_any_order_will_do_and_no_order_is_told_once() {
    for names in [["9", "10", "11"], ["11", "10", "9"], ["10", "11", "9"], ["9", "11", "10"]] {
        let [first, second, third] = names.map(|number| format!("account:{number}"));
        let mut order = Order::default();
        for (held, wanted) in [(&first, &second), (&second, &third), (&first, &third)] {
            assert_eq!(note(&mut order, held, wanted), None, "{names:?}");
        }
        let expected = Some(format!("{second}>{third}"));
        assert_eq!(note(&mut order, &third, &second), expected, "the pair that it contradicts");
        assert_eq!(note(&mut order, &third, &first), None, "{names:?}");
    }
}

#[test]
fn the_oldest_is_forgotten_for_the_newest() {
    let mut order = Order::default();
    for number in 0..2 * MOST {
        assert_eq!(note(&mut order, &format!("a{number}:1"), &format!("b{number}:1")), None);
        note(&mut order, &format!("c{number}:1"), &format!("c{number}:2"));
        note(&mut order, &format!("c{number}:2"), &format!("c{number}:1"));
    }
    let sizes = [order.pairs.map.len(), order.within.map.len(), order.told.map.len()];
    assert_eq!(sizes, [MOST; 3]);
    let last = 2 * MOST - 1;
    assert!(note(&mut order, &format!("b{last}:1"), &format!("a{last}:1")).is_some());
    assert_eq!(note(&mut order, "b0:1", "a0:1"), None, "nobody knows the other one");
}

#[test]
fn a_class_is_a_name_without_its_last_part_or_its_number() {
    for (name, expected) in
        [("a:b:c", "a:b"), ("a", "a"), ("a-7", "a-"), ("a7:x9", "a7"), ("77", ""), (":7", "")]
    {
        assert_eq!(class(name), expected, "{name}");
    }
}

#[test]
fn numbers_in_names_are_compared_as_numbers() {
    for (one, other) in [("a9", "a10"), ("a09b2", "a9b10"), ("a", "a1"), ("a1b", "a1c")] {
        assert_eq!(by_numbers(one, other), Ordering::Less, "{one} {other}");
        assert_eq!(by_numbers(other, one), Ordering::Greater, "{one} {other}");
    }
    assert_eq!(by_numbers("a7", "a7"), Ordering::Equal);
}
