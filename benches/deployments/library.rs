//! Either library, told in the same words to take locks and to free them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold::{Client, Error, Guard};
use leasehold_testkit::java::{Call, Failure, Java, hex};

/// A client.
pub(crate) enum Library {
    Java(Java),
    Rust(Client, Guards),
}

/// The locks that our client has, by their names.
pub(crate) type Guards = Arc<Mutex<HashMap<String, Guard>>>;

impl Library {
    /// Takes the lock, however long that takes. In Java, `who` is a thread, which must free it, too.
    pub(crate) fn lock(&self, who: &str, name: &str) -> Call {
        match self {
            Self::Java(java) => java.call(who, &format!("lock {} {}", java.kind, hex(name))),
            Self::Rust(client, guards) => {
                let (lock, name) = (client.mutex(name), name.to_owned());
                let guards = Arc::clone(guards);
                Call::begin(async move {
                    let guard = lock.lock().await.map_err(failure)?;
                    guards.lock().unwrap_or_else(PoisonError::into_inner).insert(name, guard);
                    Ok(1)
                })
            }
        }
    }

    pub(crate) fn unlock(&self, who: &str, name: &str) -> Call {
        match self {
            Self::Java(java) => java.call(who, &format!("unlock {} {}", java.kind, hex(name))),
            Self::Rust(_, guards) => {
                let guard = guards.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
                Call::begin(async move {
                    guard.expect("it was taken").unlock().await.map_err(failure)?;
                    Ok(1)
                })
            }
        }
    }
}

fn failure(error: Error) -> Failure {
    Failure::Other(error.to_string())
}
