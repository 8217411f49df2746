use super::super::connector::Nowhere;
use super::*;
use crate::clock::{SystemEntropy, SystemTimeSource};
use crate::config::Address;

/// A hub without its attendant, and the orders that it would get.
fn unattended() -> (Hub, mpsc::UnboundedReceiver<Order>) {
    let runtime = tokio::runtime::Handle::current();
    let clock = Clock::new(Arc::new(SystemTimeSource), Arc::new(SystemEntropy), runtime);
    let address = Address::parse("redis://nowhere").expect("a valid URL");
    let (orders, received) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        address: address.shown.clone(),
        connector: Arc::new(Nowhere),
        greeting: Greeting::of(&address),
        clock,
        response_timeout: Duration::ZERO,
        connect_timeout: Duration::ZERO,
        channels: Mutex::default(),
        mailbox: Mailbox::new("client", 0),
        orders,
        moved: watch::Sender::new(()),
        closing: CancellationToken::new(),
        connections_made: AtomicU64::new(0),
    });
    (Hub { shared }, received)
}

/// Whoever leaves a channel as the last one while another comes: the order to leave must not come behind the order
/// to listen, or the one who came would hear nothing.
#[tokio::test]
async fn orders_for_a_channel_come_in_the_order_of_what_they_follow() {
    const ROUNDS: usize = 100_000;
    let (hub, mut received) = unattended();
    let channel: Arc<str> = "c".into();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..ROUNDS).for_each(|_| drop(hub.subscribe(&channel))));
        }
    });
    let (mut listens, mut orders) = (false, 0);
    while let Ok(order) = received.try_recv() {
        orders += 1;
        match order {
            Order::Subscribe(_) => listens = true,
            Order::Unsubscribe(_) => {
                assert!(listens, "order {orders}: it was left before, so somebody had come since");
                listens = false;
            }
        }
    }
    assert!(!listens && hub.len() == 0 && orders > 2 * ROUNDS);
}
