//! Durations: every setting and every argument, from zero and a nanosecond to `Duration::MAX`.
//!
//! Checked, by the ranges of the documentation: a value out of range is `InvalidConfig`, of `connect` for a setting
//! and of the first acquiring call for a lease, and `InvalidArgument` of an extension, and no request is sent. With
//! values in range the lock is taken, held for its time and not longer, and a wait ends when it should. No overflow
//! anywhere.
//!
//! A finding again: `scripts/fuzz durations FILE`, with the file that libFuzzer wrote.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use leasehold::{ClientBuilder, Error};
use leasehold_fuzz::brain::{KNOWN_FOR, willing};
use leasehold_fuzz::{Ask, Brain, Frame, Script, World, bounded, run};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Span {
    Zero,
    Nanosecond,
    Max,
    Nanos(u64),
    Micros(u32),
    Millis(u32),
    Secs(u64),
    Days(u16),
    /// Beside the ends of ranges.
    Edge(Edge, i8),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Edge {
    Milli,
    TenMillis,
    Second,
    Minute,
    Day,
    ThirtyDays,
    Year,
}

impl Span {
    fn duration(self) -> Duration {
        match self {
            Self::Zero => Duration::ZERO,
            Self::Nanosecond => Duration::from_nanos(1),
            Self::Max => Duration::MAX,
            Self::Nanos(nanos) => Duration::from_nanos(nanos),
            Self::Micros(micros) => Duration::from_micros(micros.into()),
            Self::Millis(millis) => Duration::from_millis(millis.into()),
            Self::Secs(secs) => Duration::from_secs(secs),
            Self::Days(days) => DAY * days.into(),
            Self::Edge(edge, by) => {
                let edge = match edge {
                    Edge::Milli => MILLI,
                    Edge::TenMillis => 10 * MILLI,
                    Edge::Second => Duration::from_secs(1),
                    Edge::Minute => MINUTE,
                    Edge::Day => DAY,
                    Edge::ThirtyDays => 30 * DAY,
                    Edge::Year => 365 * DAY,
                };
                let by_nanos = Duration::from_nanos(by.unsigned_abs().into());
                if by < 0 { edge.saturating_sub(by_nanos) } else { edge + by_nanos }
            }
        }
    }
}

const MILLI: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Arbitrary, Debug)]
struct Plan {
    three: bool,
    ttl: Option<Span>,
    response_timeout: Option<Span>,
    connect_timeout: Option<Span>,
    unavailable_after: Option<Span>,
    handoff_window: Option<Span>,
    token_retention: Option<Span>,
    restart_quarantine: Option<Span>,
    min_validity: Option<Span>,
    terms: Option<(bool, Span)>,
    max_hold: Option<Span>,
    wait: Span,
    extend: Option<Span>,
    drain: Span,
    /// Another holds the lock, for so long still.
    held_for: Option<i64>,
}

/// Grants, or says that another holds it.
struct Other {
    held_for: Option<i64>,
    runs: usize,
}

impl Brain for Other {
    fn script(&mut self, ask: Ask<'_>, script: Script) {
        self.runs += 1;
        let reply = match (script, self.held_for) {
            (Script::Acquire, Some(pttl)) => Frame::Array(vec![
                Frame::Int(0),
                Frame::Int(pttl),
                Frame::text("other:1"),
                Frame::Int(0),
            ]),
            _ => willing(script),
        };
        // What a TTL must be for PEXPIRE to take it.
        if script == Script::Acquire {
            let ttl: u64 = ask.request.argv(1).parse().expect("a number");
            assert!((10..=30 * 24 * 3600 * 1000).contains(&ttl), "a TTL of {ttl} ms was sent");
        }
        ask.outlet.send(&reply.encode());
    }
}

struct Settings {
    ttl: Duration,
    response_timeout: Duration,
    quarantine: Duration,
    min_validity: Duration,
}

impl Plan {
    fn settings(&self) -> Settings {
        let or = |span: Option<Span>, usual| span.map_or(usual, Span::duration);
        Settings {
            ttl: or(self.ttl, Duration::from_secs(30)),
            response_timeout: or(self.response_timeout, Duration::from_secs(1)),
            quarantine: or(
                self.restart_quarantine,
                if self.three { MINUTE } else { Duration::ZERO },
            ),
            min_validity: or(self.min_validity, Duration::ZERO),
        }
    }

    fn build(&self, mut builder: ClientBuilder) -> ClientBuilder {
        type Set = fn(ClientBuilder, Duration) -> ClientBuilder;
        let all: [(Option<Span>, Set); 8] = [
            (self.ttl, ClientBuilder::ttl),
            (self.response_timeout, ClientBuilder::response_timeout),
            (self.connect_timeout, ClientBuilder::connect_timeout),
            (self.unavailable_after, ClientBuilder::unavailable_after),
            (self.handoff_window, ClientBuilder::handoff_window),
            (self.token_retention, ClientBuilder::token_retention),
            (self.restart_quarantine, ClientBuilder::restart_quarantine),
            (self.min_validity, ClientBuilder::min_validity),
        ];
        for (span, set) in all {
            if let Some(span) = span {
                builder = set(builder, span.duration());
            }
        }
        builder
    }

    /// Whether the documentation allows the settings.
    fn is_valid(&self) -> bool {
        let set = self.settings();
        let within = |span: Option<Span>, least: Duration, most: Duration| {
            span.is_none_or(|span| (least..=most).contains(&span.duration()))
        };
        let window = self.handoff_window.map_or(20 * MILLI, Span::duration);
        is_lease(&set, set.ttl)
            && set.quarantine <= 30 * DAY
            && set.min_validity <= set.ttl / 2
            && window <= set.ttl / 2
            && within(self.response_timeout, MILLI, DAY)
            && within(self.connect_timeout, MILLI, DAY)
            && within(self.unavailable_after, MILLI, 30 * DAY)
            && within(self.handoff_window, Duration::ZERO, Duration::from_secs(1))
            && within(self.token_retention, MINUTE, 365 * DAY)
    }
}

fn is_lease(set: &Settings, lease: Duration) -> bool {
    (10 * MILLI..=30 * DAY).contains(&lease)
        && (set.quarantine.is_zero() || lease <= set.quarantine)
}

async fn play(plan: Plan) {
    let world =
        World::new(if plan.three { 3 } else { 1 }, 7, Other { held_for: plan.held_for, runs: 0 });
    let set = plan.settings();
    let connected = plan.build(world.client()).connect().await;
    let client = match connected {
        Err(Error::InvalidConfig { .. }) => {
            assert!(!plan.is_valid(), "refused, though in range");
            return;
        }
        connected => connected.expect("a client"),
    };
    assert!(plan.is_valid(), "accepted, though out of range");
    // Connecting may have asked since when the server is known.
    let at_first = world.brain().runs;

    let (watched, lease) = match plan.terms {
        Some((watched, span)) => (watched, span.duration()),
        None => (true, set.ttl),
    };
    let mut mutex = client.mutex("m");
    if plan.terms.is_some() {
        mutex = if watched { mutex.with_ttl(lease) } else { mutex.with_lease(lease) };
    }
    let max_hold = plan.max_hold.map(Span::duration);
    if let Some(max_hold) = max_hold {
        mutex = mutex.with_max_hold(max_hold);
    }
    let valid =
        is_lease(&set, lease) && set.min_validity <= lease / 2 && max_hold != Some(Duration::ZERO);
    // Clients have known the servers for longer than a day, and they may be in quarantine still. Their clocks may be fast by one
    // percent.
    let in_quarantine = set.quarantine > KNOWN_FOR;
    let is_trusted = set.quarantine < KNOWN_FOR / 100 * 98;
    let drift = lease / 100 + 2 * MILLI;

    let wait = plan.wait.duration();
    // Where the end of the other's lease is always near, it is asked for a thousand times a second.
    let is_near = plan.held_for.is_some_and(|held_for| (0..1000).contains(&held_for));
    let patience = wait.min(Duration::from_secs(if is_near { 1 } else { 20 }));
    let waiting =
        tokio::time::timeout(patience + Duration::from_secs(1), mutex.lock_with_timeout(wait));
    let (taken, took) = bounded("lock", patience + Duration::from_secs(1), waiting).await;
    match taken {
        Ok(Err(Error::InvalidConfig { .. })) => {
            assert!(!valid, "refused, though in range");
            assert!(took.is_zero() && world.brain().runs == at_first, "asked for what cannot be");
        }
        Ok(Ok(guard)) => {
            assert!(valid && plan.held_for.is_none() && !in_quarantine);
            assert!(guard.is_held() && guard.remaining() <= lease - drift);
            hold(&guard, watched.then_some(max_hold), lease).await;
            extend(&guard, &set, plan.extend).await;
            let released = guard.unlock().await;
            assert!(matches!(released, Ok(()) | Err(Error::Lost { .. })), "{released:?}");
        }
        Ok(Err(Error::Timeout { .. })) => {
            assert!(valid && plan.held_for.is_some() && took >= wait, "timed out after {took:?}");
        }
        Ok(Err(Error::Unavailable { .. })) => {
            assert!(valid && !is_trusted, "the servers answered");
        }
        // It goes on waiting.
        Err(_) => assert!(valid && wait > patience),
        Ok(Err(error)) => panic!("{error}"),
    }
    let limit = plan.drain.duration();
    let (empty, _) =
        bounded("drain", limit.min(Duration::from_secs(30)), client.drain(limit)).await;
    assert!(empty || limit.is_zero() || limit < Duration::from_secs(1), "not drained in {limit:?}");
    bounded("shutdown", set.response_timeout, client.shutdown()).await;
}

/// `renewed`: by the watchdog, and up to which age.
async fn hold(guard: &leasehold::Guard, renewed: Option<Option<Duration>>, lease: Duration) {
    let watch = Duration::from_secs(10).min(lease * 3);
    tokio::time::sleep(watch + 2 * MILLI).await;
    let outlived = watch >= lease;
    match renewed {
        Some(None) => assert!(guard.is_held(), "not renewed"),
        Some(Some(max)) if outlived && max.saturating_add(lease) < watch => {
            assert!(!guard.is_held(), "renewed for longer than its longest hold");
        }
        None if outlived => assert!(!guard.is_held(), "a fixed lease beyond its end"),
        _ => {}
    }
}

async fn extend(guard: &leasehold::Guard, set: &Settings, by: Option<Span>) {
    let Some(by) = by.map(Span::duration) else { return };
    let held = guard.is_held();
    match guard.extend(by).await {
        Ok(()) => assert!(held && is_lease(set, by) && guard.remaining() > Duration::ZERO),
        Err(Error::InvalidArgument { .. }) => {
            assert!(!is_lease(set, by), "refused, though in range");
        }
        Err(Error::Lost { .. }) => assert!(!guard.is_held()),
        Err(error) => panic!("{error}"),
    }
}

fuzz_target!(|plan: Plan| run(|| play(plan)));
