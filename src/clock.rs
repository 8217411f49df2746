//! Time and randomness, which a simulation replaces.
//!
//! Deadlines are read from a clock that also runs while the host is suspended, so a lease that ended during a suspend
//! is seen as over at the first look after it. Timers are tokio's, on the client's runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A moment on the client's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// The time since an arbitrary origin. The largest number means never.
    nanos: u64,
}

impl Timestamp {
    /// Returns the moment `since_origin` after the clock's origin.
    pub const fn from_origin(since_origin: Duration) -> Self {
        Self { nanos: saturating_nanos(since_origin) }
    }

    /// A moment that never comes.
    pub(crate) const NEVER: Self = Self { nanos: u64::MAX };

    /// Returns the time from `earlier` to this moment, or zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos.saturating_sub(earlier.nanos))
    }

    pub(crate) fn nanos(self) -> u64 {
        self.nanos
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self { nanos }
    }

    /// Returns the moment that much later.
    pub fn plus(self, duration: Duration) -> Self {
        Self { nanos: self.nanos.saturating_add(saturating_nanos(duration)) }
    }

    pub(crate) fn minus(self, duration: Duration) -> Self {
        Self { nanos: self.nanos.saturating_sub(saturating_nanos(duration)) }
    }
}

const fn saturating_nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

/// A source of the time.
pub trait TimeSource: Send + Sync + 'static {
    /// Returns the time now, which never goes back.
    fn now(&self) -> Timestamp;

    /// Returns the number of the process whose time it is: a simulation has several in one.
    fn process(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>() as usize
    }
}

/// A source of random bits.
pub trait Entropy: Send + Sync + 'static {
    /// Returns 128 bits, of which at least 122 are random.
    fn bits(&self) -> u128;
}

/// The time of the operating system. It includes suspends on Linux, Android, Apple's systems and Windows; elsewhere it
/// is that of `Instant`.
pub(crate) struct SystemTimeSource;

impl TimeSource for SystemTimeSource {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Timestamp {
        read(rustix::time::ClockId::Boottime)
    }

    /// While the host sleeps, `Instant` stops on these systems, and this clock does not. It follows corrections of the
    /// wall clock, which could set it back a little, so no reading is earlier than the latest so far.
    #[cfg(target_vendor = "apple")]
    fn now(&self) -> Timestamp {
        static LATEST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let now = read(rustix::time::ClockId::Monotonic).nanos;
        Timestamp { nanos: LATEST.fetch_max(now, Ordering::Relaxed).max(now) }
    }

    /// On Windows this is the performance counter, which counts sleep and hibernation.
    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    fn now(&self) -> Timestamp {
        static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        Timestamp::from_origin(ORIGIN.get_or_init(std::time::Instant::now).elapsed())
    }

    fn process(&self) -> usize {
        0
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn read(clock: rustix::time::ClockId) -> Timestamp {
    let time = rustix::time::clock_gettime(clock);
    Timestamp::from_origin(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Random bits of the operating system.
pub(crate) struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn bits(&self) -> u128 {
        Uuid::new_v4().as_u128()
    }
}

/// What all parts of a client share: its time, its randomness and its runtime. Clones are the same.
#[derive(Clone)]
pub(crate) struct Clock {
    shared: Arc<Shared>,
}

struct Shared {
    source: Arc<dyn TimeSource>,
    entropy: Arc<dyn Entropy>,
    runtime: Handle,
    /// True once the runtime has dropped its tasks. A tokio timer panics if it is polled after that.
    stopped: AtomicBool,
    /// True once the program has shut the client down.
    shut_down: AtomicBool,
    /// Cancelled by either, once whoever is woken can see it.
    ended: CancellationToken,
}

impl Clock {
    pub(crate) fn new(
        source: Arc<dyn TimeSource>,
        entropy: Arc<dyn Entropy>,
        runtime: Handle,
    ) -> Self {
        let (stopped, shut_down, ended) = Default::default();
        Self { shared: Arc::new(Shared { source, entropy, runtime, stopped, shut_down, ended }) }
    }

    /// The system's, in a test.
    #[cfg(test)]
    pub(crate) fn of_this_runtime() -> Self {
        Self::new(Arc::new(SystemTimeSource), Arc::new(SystemEntropy), Handle::current())
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.source.now()
    }

    /// Returns the number of the process whose time it is. No other has it while this clock is there.
    pub(crate) fn process(&self) -> usize {
        self.shared.source.process()
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.shared.runtime
    }

    /// The runtime is gone, so nothing will ever wake a waiter again.
    pub(crate) fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.end();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Acquire)
    }

    /// The program has shut the client down, so whatever ends from now on ends for that reason.
    pub(crate) fn shut_down(&self) {
        self.shared.shut_down.store(true, Ordering::Release);
    }

    /// Wakes those who wait for the end.
    pub(crate) fn end(&self) {
        self.shared.ended.cancel();
    }

    /// Waits until the client is closed, or its runtime is gone.
    pub(crate) async fn ended(&self) {
        self.shared.ended.cancelled().await;
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shared.shut_down.load(Ordering::Acquire)
    }

    /// Returns a timer that ends at `at`, or when the runtime is gone, because nothing would wake the waiter after
    /// that.
    pub(crate) fn sleep_until(&self, at: Timestamp) -> Sleep {
        let timer = (at != Timestamp::NEVER).then(|| {
            let _runtime = self.shared.runtime.enter();
            Box::pin(tokio::time::sleep(at.since(self.now())))
        });
        Sleep { timer, clock: self.clone() }
    }

    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now().plus(duration))
    }

    /// Returns the output of `future`, or `None` if `at` comes first.
    pub(crate) async fn until<F: Future>(&self, at: Timestamp, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        let mut sleep = None;
        // Most of these futures are ready at once or after a round trip, so the timer is made only at the first wait.
        std::future::poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            let sleep = sleep.get_or_insert_with(|| self.sleep_until(at));
            Pin::new(sleep).poll(cx).map(|()| None)
        })
        .await
    }

    /// Returns a new random UUID.
    pub(crate) fn uuid(&self) -> Uuid {
        uuid::Builder::from_random_bytes(self.shared.entropy.bits().to_be_bytes()).into_uuid()
    }

    /// Returns 64 random bits.
    pub(crate) fn nonce(&self) -> u64 {
        let bits = self.shared.entropy.bits();
        // Six of the 128 bits may be fixed; no two of them meet here.
        (bits >> 64) as u64 ^ bits as u64
    }

    /// Returns a random duration from `low` up to `high`, evenly distributed.
    pub(crate) fn jitter(&self, low: Duration, high: Duration) -> Duration {
        let span = high.saturating_sub(low).as_nanos() as u64;
        let random = self.shared.entropy.bits() as u64 & (u64::MAX >> 2);
        low + Duration::from_nanos(random.checked_rem(span).unwrap_or(0))
    }

    /// Returns the pause before attempt number `attempt` at something that failed: full jitter, up to `most`.
    pub(crate) fn back_off(&self, attempt: u32, most: Duration) -> Duration {
        let ceiling = FIRST_BACK_OFF.saturating_mul(1 << attempt.min(16)).min(most);
        self.jitter(Duration::from_millis(1), ceiling)
    }
}

const FIRST_BACK_OFF: Duration = Duration::from_millis(20);

/// A timer of the client's runtime that outlives it.
pub(crate) struct Sleep {
    /// `None` if it never ends.
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
    clock: Clock,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.is_stopped() {
            return Poll::Ready(());
        }
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Always the same bits.
    struct Fixed(u128);

    impl Entropy for Fixed {
        fn bits(&self) -> u128 {
            self.0
        }
    }

    fn with_bits(bits: u128) -> Clock {
        Clock::new(Arc::new(SystemTimeSource), Arc::new(Fixed(bits)), Handle::current())
    }

    fn nanos(duration: Duration) -> u128 {
        duration.as_nanos()
    }

    #[test]
    fn moments_stay_between_the_origin_and_never() {
        let moment = Timestamp::from_origin(SECOND);
        assert_eq!((moment.nanos(), Timestamp::from_nanos(1_000_000_000)), (1_000_000_000, moment));
        assert_eq!(moment.plus(SECOND).since(moment), SECOND);
        assert_eq!(moment.since(moment.plus(SECOND)), Duration::ZERO);
        assert_eq!(moment.minus(SECOND * 2), Timestamp::default());
        assert_eq!(moment.plus(Duration::MAX), Timestamp::NEVER);
    }

    #[tokio::test]
    async fn a_jitter_is_spread_by_the_random_bits_from_the_low_end_to_the_high_one() {
        let (low, high) = (SECOND, SECOND * 3);
        for (bits, spread) in [(0, low), (nanos(SECOND), SECOND * 2), (nanos(SECOND * 2), low)] {
            assert_eq!(with_bits(bits).jitter(low, high), spread, "{bits}");
        }
        assert_eq!(with_bits(7).jitter(low, low), low);
        assert_eq!(with_bits(7).jitter(high, low), high);
        assert_eq!(with_bits(1 << 63 | 1 << 62).jitter(low, high), low, "they are no random bits");
    }

    #[tokio::test]
    async fn each_bit_of_a_nonce_is_random() {
        let fixed = Uuid::new_v4().as_u128() & 0xf000_c000_0000_0000_0000;
        let nonce = |bits: u128| with_bits(fixed ^ bits).nonce();
        for bit in 0..64 {
            assert_eq!(nonce(1 << bit) ^ nonce(0), 1 << bit);
            assert_eq!(nonce(1 << (64 + bit)) ^ nonce(0), 1 << bit);
        }
    }

    #[tokio::test]
    async fn each_pause_is_up_to_twice_as_long_as_the_one_before() {
        let (shortest, most) = (Duration::from_millis(1), Duration::MAX);
        for (attempt, doublings) in [(0, 0), (1, 1), (5, 5), (16, 16), (17, 16), (1000, 16)] {
            let ceiling = FIRST_BACK_OFF * (1 << doublings);
            let span = nanos(ceiling - shortest);
            assert_eq!(with_bits(0).back_off(attempt, most), shortest);
            assert_eq!(with_bits(span).back_off(attempt, most), shortest, "{attempt}");
            let longest = with_bits(span - 1).back_off(attempt, most);
            assert_eq!(longest, ceiling - Duration::from_nanos(1), "{attempt}");
        }
        let span = nanos(SECOND - shortest);
        assert_eq!(with_bits(span - 1).back_off(9, SECOND), SECOND - Duration::from_nanos(1));
        assert_eq!(with_bits(span).back_off(9, SECOND), shortest);
    }

    #[tokio::test]
    async fn a_sleep_ends_when_its_runtime_is_gone() {
        let clock = with_bits(0);
        let (mut never, mut long) = (clock.sleep_until(Timestamp::NEVER), clock.sleep(SECOND * 60));
        let mut over = clock.sleep(Duration::ZERO);
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(!clock.is_stopped());
        assert_eq!(
            [&mut never, &mut long, &mut over].map(|sleep| sleep.now_or_never()),
            [None, None, Some(())]
        );
        clock.stop();
        assert!(clock.is_stopped());
        assert_eq!([&mut never, &mut long].map(|sleep| sleep.now_or_never()), [Some(()); 2]);
    }
}
