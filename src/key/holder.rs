//! Who holds a lock: the ids of leases, and the text by which the servers know a holder.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::clock::{SystemTimeSource, TimeSource, Timestamp};
use crate::text::{Printable, shortened};

/// The field of a lock's hash that one lease owns: `client:uuid`, new for every acquire that is sent.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LeaseId(pub(crate) Arc<str>);

impl LeaseId {
    /// `block` is the number of holds that may use the lease, one after the other. The version of the UUID shows everybody
    /// whether there may be several. `mailbox` is the number of the client's mailbox, if the first who waits shall tell the holder: the UUID ends with it.
    pub(crate) fn new(client: &str, uuid: Uuid, block: u64, mailbox: Option<u64>) -> Self {
        let mut bytes = uuid.into_bytes();
        if let Some(number) = mailbox {
            bytes[8..].copy_from_slice(&number.to_be_bytes());
        }
        if block > 1 {
            bytes[6] = bytes[6] & 0x0f | (PASSED_ON as u8) << 4;
        }
        let uuid = Uuid::from_bytes(bytes);
        let mut buffer = Uuid::encode_buffer();
        let uuid = uuid.hyphenated().encode_lower(&mut buffer);
        Self(super::joined(&[client, ":", uuid]))
    }
}

/// A lock's holder, as the server knows it: the text that names the holder in the lock's hash.
///
/// The text is `client:uuid` for a lease of this library, and `uuid:thread` for one of Redisson.
///
/// It names exactly one lease, which usually is one hold. If a client has several waiters, the lease may pass from one
/// to the next during the [`handoff_window`](crate::ClientBuilder::handoff_window).
#[derive(Clone)]
pub struct Holder {
    text: Arc<str>,
    seen_at: Timestamp,
}

impl Holder {
    pub(crate) fn new(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), seen_at: SystemTimeSource.now() }
    }

    /// Returns the holder that `text` names in the lock's hash. Use it for
    /// [`force_unlock_if`](crate::Mutex::force_unlock_if), or in tests of code that receives a holder. It counts as seen
    /// now.
    ///
    /// ```
    /// use leasehold::Holder;
    ///
    /// let holder = Holder::named("billing-7:01234567-89ab-cdef-0123-456789abcdef");
    /// assert_eq!(holder.client(), Some("billing-7"));
    /// ```
    pub fn named(text: impl AsRef<str>) -> Self {
        Self::new(text.as_ref())
    }

    /// Returns the whole text, which names exactly one lease.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the age that the lease must have by now, so that it cannot have passed on since this holder was seen. It is
    /// `None` if the lease never passes on. `seen_late` is the longest time that an answer may have been on its way.
    pub(crate) fn certain_age(&self, seen_late: Duration) -> Option<Duration> {
        let (_, uuid) = self.text.rsplit_once(':')?;
        let version = Uuid::try_parse(uuid).ok()?.get_version_num();
        let since = SystemTimeSource.now().since(self.seen_at);
        // A fiftieth is added, since clocks run at different rates.
        (version == PASSED_ON).then(|| since + since / 50 + seen_late + LONGEST_WINDOW)
    }

    /// Returns the name of the client that holds the lock, or `None` if it is not a client of this library.
    pub fn client(&self) -> Option<&str> {
        let (client, uuid) = self.text.rsplit_once(':')?;
        Uuid::try_parse(uuid).ok().map(|_| client)
    }

    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Returns true if both can be the same holder on two servers: Redisson's RedLock has another name on each server.
    pub(crate) fn is_one_with(&self, other: &Self) -> bool {
        self == other || (self.client().is_none() && other.client().is_none())
    }
}

/// Shows the holder without the end of its random part: enough to tell holders apart, but not to act as one.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text.rsplit_once(':') {
            Some((client, uuid)) if Uuid::try_parse(uuid).is_ok() => {
                write!(f, "{}:{}", Printable(&shortened(client)), &uuid[..8])
            }
            _ => Printable(&shortened(&self.text)).fmt(f),
        }
    }
}

/// Serializes the text that `Display` shows, without the random end.
#[cfg(feature = "serde")]
impl serde::Serialize for Holder {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        crate::serial::text(self, to)
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Holder({self})")
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Holder::new(self.0.clone()).fmt(f)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({})", Holder::new(self.0.clone()))
    }
}

impl PartialEq for Holder {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Holder {}

impl std::hash::Hash for Holder {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// The version of the UUIDs of leases that may pass from one hold to the next.
const PASSED_ON: usize = 8;
/// The longest time during which a lease may pass on, with a margin; see `config/mod.rs`.
const LONGEST_WINDOW: Duration = Duration::from_millis(1500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_lease_says_whether_it_may_pass_from_one_hold_to_the_next() {
        let uuid = Uuid::from_u128(0x0123_4567_89ab_4def_8123_4567_89ab_cdef);
        let one = LeaseId::new("a", uuid, 1, None).0;
        assert_eq!(&*one, "a:01234567-89ab-4def-8123-456789abcdef");
        assert_eq!(Holder::new(one).certain_age(Duration::ZERO), None);
        let several = LeaseId::new("a", uuid, 2, None).0;
        assert_eq!(&*several, "a:01234567-89ab-8def-8123-456789abcdef");
        let mailed = LeaseId::new("a", uuid, 1, Some(0xc123_0000_0000_4567)).0;
        assert_eq!(
            &*mailed, "a:01234567-89ab-4def-c123-000000004567",
            "it ends with the mailbox's number"
        );
        let late = Duration::from_secs(9);
        let seen_at_boot = Holder { text: several, seen_at: Timestamp::default() };
        let age = |since: Duration| since + since / 50 + late + LONGEST_WINDOW;
        let least = age(SystemTimeSource.now().since(seen_at_boot.seen_at));
        let certain = seen_at_boot.certain_age(late).expect("another hold may have it by now");
        let most = age(SystemTimeSource.now().since(seen_at_boot.seen_at));
        assert!((least..=most).contains(&certain), "{certain:?} is not in {least:?} to {most:?}");
    }

    #[test]
    fn the_same_holder_has_the_same_hash_and_another_one_another() {
        let hashes = std::hash::RandomState::new();
        let hash = |text: &str| std::hash::BuildHasher::hash_one(&hashes, Holder::new(text));
        assert_eq!(hash("a:1"), hash("a:1"));
        assert_ne!(hash("a:1"), hash("a:2"));
    }

    #[test]
    fn holders_are_the_same_or_both_of_a_red_lock() {
        let one = Holder::new("a:01234567-89ab-4def-8123-456789abcdef");
        let other = Holder::new("a:11234567-89ab-4def-8123-456789abcdef");
        let (java, java_elsewhere) = (Holder::new("u:77"), Holder::new("v:1"));
        assert!(one.is_one_with(&one.clone()) && java.is_one_with(&java_elsewhere));
        for (a, b) in [(&one, &other), (&one, &java), (&java, &one)] {
            assert!(!a.is_one_with(b), "{a:?} {b:?}");
        }
        assert_eq!(one.as_str(), "a:01234567-89ab-4def-8123-456789abcdef");
    }

    #[test]
    fn a_holder_is_shown_without_its_secret_end() {
        let uuid = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        let id = LeaseId::new("billing-7", uuid, 1, None);
        let holder = Holder::new(id.0.clone());
        assert_eq!(holder.to_string(), "billing-7:01234567");
        assert_eq!(holder.client(), Some("billing-7"));
        assert_eq!(Holder::new("0123:77").client(), None);
        let passed_on = LeaseId::new("billing-7", uuid, 2, None);
        assert_eq!(Holder::new(passed_on.0).to_string(), "billing-7:01234567");
        let shown = format!("{holder:?} {id:?}");
        assert_eq!(shown, "Holder(billing-7:01234567) LeaseId(billing-7:01234567)");
    }
}
