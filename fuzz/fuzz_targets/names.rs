//! Names of locks and clients: any UTF-8, any length, braces, NUL, line ends, the prefixes of derived keys.
//!
//! Checked:
//! * A lock's name out of range gives `InvalidName`, and no request is sent; any other name is sent as it is, as
//!   the first key. The same for clients' names.
//! * The keys that a lock writes to are no other lock's: neither its own key, nor its counter, nor its queue. Channels
//!   neither. The one exception is Redisson's own: `n` and `{n}` share counter and channel, which wakes in vain and skips
//!   numbers, and harms nothing.
//! * What the errors and `Debug` say of a name can be made.
//!
//! A finding again: `scripts/fuzz names FILE`, with the file that libFuzzer wrote.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use arbitrary::{Arbitrary, Result as Made, Unstructured};
use leasehold::{Client, Error};
use leasehold_fuzz::brain::willing;
use leasehold_fuzz::{Ask, Brain, Script, World, bounded, run};
use libfuzzer_sys::fuzz_target;

#[derive(Debug)]
struct Name(String);

impl<'a> Arbitrary<'a> for Name {
    fn arbitrary(input: &mut Unstructured<'a>) -> Made<Self> {
        let mut name = String::new();
        for _ in 0..input.int_in_range(0..=6)? {
            match input.int_in_range(0..=9)? {
                0 => name.push('{'),
                1 => name.push('}'),
                2 => name.push(':'),
                3 => {
                    let prefixes: Vec<_> = leasehold::seam::prefixes().chain(CHANNELS).collect();
                    name.push_str(input.choose(&prefixes)?);
                }
                4 => name.push_str(input.choose(&[
                    "\0",
                    "\r\n",
                    "'; redis.call('flushall') --",
                    "n",
                ])?),
                5 => name = format!("{{{name}}}"),
                6 => name = name.repeat(input.int_in_range(1..=64)?),
                7 => name.push_str(&"x".repeat(input.int_in_range(4080..=4100)?)),
                _ => name.push_str(input.arbitrary()?),
            }
            if name.len() > 1 << 16 {
                break;
            }
        }
        Ok(Self(name))
    }
}

const CHANNELS: [&str; 1] = ["redisson_lock__channel"];

#[derive(Arbitrary, Debug)]
struct Plan {
    locks: [Name; 2],
    client: Option<Name>,
    redisson_fencing: bool,
}

/// One run of a script.
struct Run {
    script: Script,
    keys: Vec<Vec<u8>>,
    /// The lock's channel, if the script has it.
    channel: Option<Vec<u8>>,
    /// The first argument.
    first: String,
}

/// Answers well, and keeps what each lock's scripts name.
#[derive(Default)]
struct Ledger {
    runs: Vec<Run>,
}

impl Brain for Ledger {
    fn script(&mut self, ask: Ask<'_>, script: Script) {
        let channel = match script {
            Script::Release => Some(1),
            Script::Force => Some(2),
            Script::Status => Some(0),
            _ => None,
        };
        self.runs.push(Run {
            script,
            keys: ask.request.keys().to_vec(),
            channel: channel.map(|at| ask.request.argv(at).into_bytes()),
            first: ask.request.argv(0),
        });
        ask.outlet.send(&willing(script).encode());
    }
}

/// What a lock touches.
#[derive(Debug, Default)]
struct Touched {
    keys: BTreeSet<Vec<u8>>,
    channels: BTreeSet<Vec<u8>>,
}

/// As the documentation has it: 1 to 4096 bytes, and neither the beginning of the library's own keys nor that of Redisson's counters.
fn is_lock_name(name: &str) -> bool {
    let of_others = ["leasehold_", "redisson_lock_token:"];
    (1..=4096).contains(&name.len()) && !of_others.iter().any(|prefix| name.starts_with(prefix))
}

fn is_client_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

async fn touch(world: &World<Ledger>, client: &Client, name: &str) -> Option<Touched> {
    let from = world.brain().runs.len();
    let mutex = client.mutex(name);
    assert!(!format!("{mutex:?}").is_empty());
    let (taken, took) = bounded("try_lock", Duration::ZERO, mutex.try_lock()).await;
    let (status, _) = bounded("status", Duration::ZERO, mutex.status()).await;
    if !is_lock_name(name) {
        for error in [taken.err(), status.err(), mutex.force_unlock().await.err()] {
            let error = error.expect("an error for a name out of range");
            assert!(matches!(error, Error::InvalidName { .. }), "{error}");
        }
        assert!(took.is_zero());
        assert_eq!(world.brain().runs.len(), from, "a request for a name out of range");
        return None;
    }
    status.expect("a status");
    let guard = taken.expect("an answer").expect("a free lock");
    assert_eq!(guard.name(), name);
    assert!(!format!("{guard:?} {:?} {}", guard.holder(), guard.holder()).is_empty());
    guard.unlock().await.expect("a release");
    mutex.force_unlock().await.expect("an answer");
    let mut touched = Touched::default();
    for Run { script, keys, channel, first } in &world.brain().runs[from..] {
        assert_eq!(keys[0], name.as_bytes(), "{script:?}");
        touched.keys.extend(keys.iter().cloned());
        touched.channels.extend(channel.clone());
        let id = format!("{}:", client.name());
        let of_a_lease = !matches!(script, Script::Status | Script::Force);
        assert!(!of_a_lease || (first.starts_with(&id) && first.len() == id.len() + 36), "{first}");
    }
    // Itself, its counter and its queue.
    assert_eq!((touched.keys.len(), touched.channels.len()), (3, 1), "{touched:?}");
    Some(touched)
}

/// Redisson puts `n` into braces where it has none.
fn are_twins(one: &str, other: &str) -> bool {
    let in_braces = |name: &str| format!("{{{name}}}");
    (!one.contains('{') && other == in_braces(one))
        || (!other.contains('{') && one == in_braces(other))
}

async fn play(plan: Plan) {
    let world = World::new(1, 7, Ledger::default());
    let mut settings = world.client().redisson_fencing(plan.redisson_fencing);
    if let Some(Name(name)) = &plan.client {
        settings = settings.name(name.clone());
    }
    let client = match settings.connect().await {
        Ok(client) => client,
        Err(error) => {
            let named = plan.client.is_some_and(|Name(name)| !is_client_name(&name));
            assert!(named && matches!(error, Error::InvalidName { .. }), "{error}");
            return;
        }
    };
    if let Some(Name(name)) = &plan.client {
        assert!(is_client_name(name), "{name:?} was taken for a client's name");
    }
    let [Name(one), Name(other)] = &plan.locks;
    let touched = (touch(&world, &client, one).await, touch(&world, &client, other).await);
    client.shutdown().await;
    let (Some(first), Some(second)) = touched else { return };
    if one == other {
        return;
    }
    let shared: Vec<_> = first.keys.intersection(&second.keys).collect();
    let channels: Vec<_> = first.channels.intersection(&second.channels).collect();
    if !are_twins(one, other) {
        assert!(
            shared.is_empty() && channels.is_empty(),
            "{one:?} and {other:?}: {shared:?} {channels:?}"
        );
    }
    // Whatever they share, it is nobody's lock.
    assert!(shared.iter().all(|key| ***key != *one.as_bytes() && ***key != *other.as_bytes()));
}

fuzz_target!(|plan: Plan| run(|| play(plan)));
