//! The user's translation of the addresses that a cluster announces. It is the user's code: it runs under no mutex, since it
//! may ask the client something, and its panic ends no task.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::Mutex;

use super::slots::Location;
use crate::config::AddressMap;
use crate::error::Fault;

pub(super) struct Translation {
    map: AddressMap,
    known: Mutex<BTreeMap<Location, Translated>>,
}

enum Translated {
    /// Somebody is at it.
    Asked,
    To(String, u16),
    Panicked,
}

impl Translation {
    pub(super) fn new(map: AddressMap) -> Self {
        Self { map, known: Mutex::default() }
    }

    /// Returns the host and the port of a location, if they are known. The second value: the caller has
    /// [`ask`](Self::ask) called for it.
    pub(super) fn of(&self, location: &Location) -> (Result<(String, u16), Fault>, bool) {
        let mut known = self.known.lock();
        let fault = match known.get(location) {
            Some(Translated::To(host, port)) => return (Ok((host.clone(), *port)), false),
            Some(Translated::Panicked) => Fault::WrongServer(PANICKED.into()),
            Some(Translated::Asked) => Fault::Down(UNKNOWN.into()),
            None => {
                known.insert(location.clone(), Translated::Asked);
                return (Err(Fault::Down(UNKNOWN.into())), true);
            }
        };
        (Err(fault), false)
    }

    /// Asks the user, unless that has been done. The caller has no mutex. Returns true if that is news.
    pub(super) fn ask(&self, location: &Location) -> bool {
        if let Some(Translated::To(..)) = self.known.lock().get(location) {
            return false;
        }
        let ask = || self.map.of(&location.host, location.port);
        let translated = match catch_unwind(AssertUnwindSafe(ask)) {
            Ok((host, port)) => Translated::To(host, port),
            Err(_) => Translated::Panicked,
        };
        let is_news = matches!(translated, Translated::To(..));
        self.known.lock().insert(location.clone(), translated);
        is_news
    }

    /// Forgets the locations that nobody needs any more.
    pub(super) fn keep(&self, is_needed: impl Fn(&Location) -> bool) {
        self.known.lock().retain(|location, _| is_needed(location));
    }
}

const PANICKED: &str = "the function of `address_map` panicked";
const UNKNOWN: &str = "its address is being translated";
