use super::*;

/// A table: who holds which lock, and who waits for which.
#[derive(Default)]
struct Table {
    waits: Waits<&'static str>,
    holds: Vec<(&'static str, Party)>,
    /// How many permits there are of what is a semaphore, and how many each of its holders has.
    permits: HashMap<&'static str, (u64, u64)>,
}

fn named(name: &'static str) -> Party {
    Party { owner: Owner::named(name), place: Place::here() }
}

impl Table {
    fn holds(&mut self, lock: &'static str, who: &Party) {
        self.holds.push((lock, who.clone()));
    }

    /// Returns the number of the wait, and the circle that it closes: `lock` and holder of each edge.
    fn waits(&mut self, who: &Party, lock: &'static str) -> (u64, String) {
        let number = self.waits.begin(who.clone(), lock);
        (number, self.circle(number))
    }

    fn circle(&self, number: u64) -> String {
        let in_the_way = |_, lock: &&'static str| {
            let (all, weight) = self.permits.get(lock).copied().unwrap_or((1, 1));
            let blocks = self.holds.iter().filter(|(held, _)| held == lock);
            let holds = blocks.map(|(lock, party)| (party.clone(), weight, (*lock, party.clone())));
            InTheWay { spare: all - 1, holds: holds.collect() }
        };
        let knot = self.waits.knot(number, in_the_way);
        let circle = knot.map(|knot| knot.circle).unwrap_or_default();
        let edges = circle.iter().map(|edge| {
            let (lock, party) = &edge.hold;
            let owner = party.owner.to_string();
            format!("{lock} of {}", owner.split('#').next().unwrap_or_default())
        });
        edges.collect::<Vec<_>>().join(", ")
    }
}

/// Owners in tasks of their own.
async fn parties<const N: usize>(names: [&'static str; N]) -> [Party; N] {
    let mut parties = Vec::new();
    for name in names {
        parties.push(tokio::spawn(async move { named(name) }).await.expect("no panic"));
    }
    parties.try_into().unwrap_or_else(|_| panic!("as many as were named"))
}

#[tokio::test]
async fn the_wait_that_closes_a_circle_is_told_and_no_other() {
    let [x, y, z] = parties(["x", "y", "z"]).await;
    let mut table = Table::default();
    table.holds("a", &x);
    table.holds("b", &y);
    table.holds("c", &z);
    assert_eq!(table.waits(&x, "b").1, "");
    assert_eq!(table.waits(&y, "c").1, "");
    let (closing, circle) = table.waits(&z, "a");
    assert_eq!(circle, "a of x, b of y, c of z");
    table.waits.end(closing);
    assert_eq!(table.waits(&z, "d").1, "", "nobody holds that");
}

#[tokio::test]
async fn a_wait_behind_a_circle_is_not_in_it() {
    let [x, y, z] = parties(["x", "y", "z"]).await;
    let mut table = Table::default();
    table.holds("a", &x);
    table.holds("b", &y);
    table.holds("c", &z);
    table.waits(&x, "b");
    assert_eq!(table.waits(&y, "a").1, "a of x, b of y");
    assert_eq!(table.waits(&z, "a").1, "");
}

#[tokio::test]
async fn a_wait_that_has_ended_closes_nothing() {
    let [x, y] = parties(["x", "y"]).await;
    let mut table = Table::default();
    table.holds("a", &x);
    table.holds("b", &y);
    let (first, _) = table.waits(&x, "b");
    assert_eq!(table.waits.end(first), Some("b"));
    assert_eq!(table.waits(&y, "a").1, "");
    assert_eq!(table.waits(&x, "b").1, "b of y, a of x");
}

#[tokio::test]
async fn any_of_several_that_share_a_lock_is_in_the_way() {
    let [x, y, z] = parties(["x", "y", "z"]).await;
    let mut table = Table::default();
    table.holds("shared", &x);
    table.holds("shared", &y);
    table.holds("a", &z);
    table.waits(&y, "a");
    assert_eq!(table.waits(&z, "shared").1, "shared of y, a of z");
}

#[tokio::test]
async fn who_waits_for_two_things_at_once_is_not_known_to_be_blocked() {
    let [x, y] = parties(["x", "y"]).await;
    let mut table = Table::default();
    table.holds("a", &x);
    table.holds("b", &y);
    let (other, _) = table.waits(&x, "d");
    table.waits(&x, "b");
    let (closing, circle) = table.waits(&y, "a");
    assert_eq!(circle, "");
    table.waits.end(other);
    assert_eq!(table.circle(closing), "a of x, b of y");
}

#[tokio::test]
async fn an_owner_without_a_name_is_known_by_its_task_and_a_named_one_in_every_task() {
    let [x, y] = parties(["x", "y"]).await;
    let name = "n".into();
    let key = crate::owner::LockKey { client: 1, name: &name };
    let single = |place| Party { owner: Owner::resolve(None, key), place };
    let mut table = Table::default();
    table.holds("a", &single(x.place));
    table.holds("b", &y);
    table.waits(&single(x.place), "b");
    let elsewhere = Party { owner: y.owner.clone(), place: Place::here() };
    assert_eq!(table.waits(&elsewhere, "a").1, "a of , b of y");
    assert_eq!(table.waits(&single(Place::here()), "a").1, "", "it holds nothing");
}

#[tokio::test]
async fn a_long_circle_is_given_up_and_waits_leave_nothing_behind() {
    let mut table = Table::default();
    let mut numbers = Vec::new();
    let names: Vec<&'static str> =
        (0..=MOST_WAITS).map(|number| &*format!("l{number}").leak()).collect();
    let mut all = Vec::new();
    for name in &names {
        let [party] = parties([name]).await;
        table.holds(name, &party);
        all.push(party);
    }
    for (at, party) in all.iter().enumerate().skip(1) {
        numbers.push(table.waits(party, names[at - 1]).0);
    }
    let (closing, circle) = table.waits(&all[0], names[MOST_WAITS]);
    assert_eq!(circle, "", "more waits than are looked at");
    table.waits.end(closing);
    let (closing, circle) = table.waits(&all[0], names[MOST_WAITS - 1]);
    assert_eq!(circle.split(", ").count(), MOST_WAITS);
    numbers.push(closing);
    for number in numbers {
        assert!(table.waits.end(number).is_some());
    }
    assert!(table.waits.waits.is_empty() && table.waits.by_party.0.is_empty());
}

#[tokio::test]
async fn who_waits_for_a_permit_is_blocked_if_all_are_who_have_one() {
    let [x, y, z, w] = parties(["x", "y", "z", "w"]).await;
    let mut table = Table::default();
    table.permits.insert("s", (2, 1));
    table.holds("s", &x);
    table.holds("s", &y);
    table.holds("m", &w);
    table.holds("n", &z);
    table.waits(&x, "m");
    let (first, circle) = table.waits(&w, "s");
    assert_eq!(circle, "", "y may give its permit back");
    table.waits(&y, "n");
    assert_eq!(table.circle(first), "", "y waits, and z may give n back");
    let (last, circle) = table.waits(&z, "s");
    assert_eq!(circle, "s of y, n of z");
    assert_eq!(table.circle(first), "s of x, m of w");
    table.waits.end(last);
    assert_eq!(table.circle(first), "");
}

#[tokio::test]
async fn who_waits_for_a_permit_is_blocked_if_too_few_are_left() {
    let [x, y, w] = parties(["x", "y", "w"]).await;
    for (weight, is_blocked) in [(1, false), (2, true)] {
        let mut table = Table::default();
        // Of all permits only those of x and y are known.
        table.permits.insert("s", (4, weight));
        table.holds("s", &x);
        table.holds("s", &y);
        table.holds("m", &w);
        table.waits(&x, "m");
        table.waits(&y, "m");
        let (_, circle) = table.waits(&w, "s");
        assert_eq!(!circle.is_empty(), is_blocked, "{weight}: {circle}");
    }
}

#[tokio::test]
async fn more_holders_are_looked_at_where_all_of_them_count() {
    let mut table = Table::default();
    let [w] = parties(["w"]).await;
    let many = 2 * MOST_WAITS;
    table.permits.insert("s", (many as u64, 1));
    table.holds("m", &w);
    for _ in 0..many {
        let [party] = parties(["x"]).await;
        table.holds("s", &party);
        table.waits(&party, "m");
    }
    assert_eq!(table.waits(&w, "s").1, "s of x, m of w");
}
