//! What a server answers to a list: a part of its keys, or its channels, and the locks that they may belong to.

use std::sync::Arc;
use std::time::Duration;

use super::walk::{KeyType, Step};
use crate::key::{self, LockKind};
use crate::script::{self, Arg, Call, Reply};

/// What a server says about a part of its keys, or about its channels.
pub(super) struct Page {
    /// Zero: that was the end.
    pub(super) next: u64,
    pub(super) size: Option<u64>,
    /// How long it took the server, if it says so.
    pub(super) took: Option<Duration>,
    pub(super) leads: Vec<Lead>,
}

impl Page {
    pub(super) fn read(step: &Step, reply: &Reply) -> Option<Self> {
        let of = match step {
            Step::Channels => {
                // A name that is no text is not one of ours.
                let channels = reply.list()?.iter().filter_map(utf8);
                let of = channels.flat_map(key::of_channel);
                let leads = of.map(|(kind, name)| Lead::new(name, Some(kind))).collect();
                return Some(Self { next: 0, size: None, took: None, leads });
            }
            Step::Keys { of, .. } => of,
        };
        let [next, size, took_us, found] = reply.list()? else { return None };
        let next = next.text()?.parse().ok()?;
        let size = u64::try_from(size.number()?).ok();
        let took_us = u64::try_from(took_us.number()?).ok();
        let mut leads = Vec::new();
        for pair in found.list()?.chunks(2) {
            let [key, kind] = pair else { return None };
            let Some(key) = utf8(key) else { continue };
            match (of, kind.text()?) {
                (KeyType::Hash, "lock") => leads.push(Lead::new(key, Some(LockKind::Mutex))),
                (KeyType::Hash, "rw") => leads.push(Lead::new(key, Some(LockKind::RwLock))),
                (KeyType::Hash, _) => leads.push(Lead::new(key, None)),
                (KeyType::SortedSet, _) => {
                    let queue = key::of_queue_key(key);
                    leads.extend(queue.map(|(kind, name)| Lead::new(name, Some(kind))));
                    let permits = key::of_permits_key(key).into_iter();
                    leads.extend(permits.map(|name| Lead::new(name, Some(LockKind::Semaphore))));
                }
            }
        }
        let took = took_us.filter(|took_us| *took_us > 0).map(Duration::from_micros);
        Some(Self { next, size, took, leads })
    }
}

fn utf8(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::Text(text) => Some(text),
        _ => None,
    }
}

/// A lock that may be what is wanted.
#[derive(Clone, Debug)]
pub(super) struct Lead {
    pub(super) name: Arc<str>,
    /// `None`: a mutex or a read-write lock.
    pub(super) kind: Option<LockKind>,
    /// Somebody in this process waits for it.
    pub(super) is_waited_here: bool,
}

impl Lead {
    fn new(name: &str, kind: Option<LockKind>) -> Self {
        Self { name: name.into(), kind, is_waited_here: false }
    }
}

/// Asks for what stands behind `cursor`.
pub(super) fn call(step: &Step, cursor: u64, is_sharded: bool) -> Call {
    let (script, args) = match step {
        Step::Channels => {
            let verb = if is_sharded { "SHARDCHANNELS" } else { "CHANNELS" };
            let words = [verb].into_iter().chain(key::WAITED_CHANNELS);
            (&script::WAITED_CHANNELS, words.map(Arg::Word).collect())
        }
        Step::Keys { pattern, of } => {
            let of = match of {
                KeyType::Hash => "hash",
                KeyType::SortedSet => "zset",
            };
            let pattern = Arg::Text(pattern.as_str().into());
            let args = vec![Arg::Number(cursor), Arg::Number(COUNT), pattern, Arg::Word(of)];
            (&script::LIST_PAGE, args)
        }
    };
    Call { script, keys: Vec::new(), args }
}

/// The number of keys that are looked at in one run of a script, which takes about a millisecond.
pub(super) const COUNT: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Text(text.to_owned())
    }

    fn keys(of: KeyType) -> Step {
        Step::Keys { pattern: "*".to_owned(), of }
    }

    fn page(found: &[&str]) -> Reply {
        let found = found.iter().map(|word| text(word)).collect();
        Reply::List(vec![text("17"), Reply::Number(3000), Reply::Number(250), Reply::List(found)])
    }

    fn leads(page: &Page) -> Vec<(&str, Option<LockKind>)> {
        page.leads.iter().map(|lead| (&*lead.name, lead.kind)).collect()
    }

    #[test]
    fn a_page_names_the_locks_and_the_way_on() {
        let reply = page(&["a", "lock", "b", "rw", "c", "unknown"]);
        let hashes = Page::read(&keys(KeyType::Hash), &reply).expect("it is understood");
        assert_eq!((hashes.next, hashes.size), (17, Some(3000)));
        assert_eq!(hashes.took, Some(Duration::from_micros(250)));
        let expected = [("a", Some(LockKind::Mutex)), ("b", Some(LockKind::RwLock)), ("c", None)];
        assert_eq!(leads(&hashes), expected);
        let reply = page(&["{p}:timeout", "any", "leasehold_rw_queue:{q}", "any", "other", "any"]);
        let sets = Page::read(&keys(KeyType::SortedSet), &reply).expect("it is understood");
        let of = |name, kind| (name, Some(kind));
        let semaphores = [of("p", LockKind::Semaphore), of("{p}", LockKind::Semaphore)];
        assert_eq!(leads(&sets), [&semaphores[..], &[of("q", LockKind::RwLock)]].concat());
    }

    #[test]
    fn a_name_that_is_no_text_is_passed_over_and_an_answer_that_is_none_is_not_read() {
        let raw = Reply::Raw { bytes: vec![0xff], shown: "?".to_owned() };
        let channels = Reply::List(vec![raw.clone(), text("redisson_rwlock:{n}")]);
        let found = Page::read(&Step::Channels, &channels).expect("it is understood");
        assert_eq!(found.next, 0);
        let expected = [("n", Some(LockKind::RwLock)), ("{n}", Some(LockKind::RwLock))];
        assert_eq!(leads(&found)[..1], expected[..1]);
        let with = |place: usize, reply: Reply| {
            let mut items = page(&[]).list().expect("a list").to_vec();
            items[place] = reply;
            Page::read(&keys(KeyType::Hash), &Reply::List(items))
        };
        let skipped = with(3, Reply::List(vec![raw, text("lock")])).expect("it is understood");
        assert!(skipped.leads.is_empty());
        let hidden = with(1, Reply::Number(-1)).expect("it is understood");
        assert_eq!(hidden.size, None, "the user may not know");
        let unknown = with(2, Reply::Number(0)).expect("it is understood");
        assert_eq!(unknown.took, None);
        for (place, odd) in
            [(0, text("-1")), (1, Reply::Nil), (2, Reply::Nil), (3, Reply::List(vec![text("n")]))]
        {
            assert!(with(place, odd).is_none(), "{place}");
        }
        assert!(Page::read(&Step::Channels, &Reply::Nil).is_none());
    }
}
