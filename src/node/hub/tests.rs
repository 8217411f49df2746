use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::super::connector::Nowhere;
use super::super::greeting::Greeting;
use super::*;
use crate::clock::{Clock, SystemEntropy, SystemTimeSource};
use crate::config::Address;

fn nowhere() -> Arc<Endpoint> {
    let runtime = tokio::runtime::Handle::current();
    let clock = Clock::new(Arc::new(SystemTimeSource), Arc::new(SystemEntropy), runtime);
    let address = Address::parse("redis://nowhere").expect("a valid URL");
    Arc::new(Endpoint {
        address: address.shown.clone(),
        connector: Arc::new(Nowhere),
        greeting: Greeting::of(&address),
        clock,
        response_timeout: Duration::ZERO,
        connect_timeout: Duration::ZERO,
        connections_made: AtomicU64::new(0),
    })
}

fn unattended() -> (Hub, mpsc::UnboundedReceiver<Order>) {
    Hub::unattended(nowhere(), Mailbox::new("client", 0))
}

/// If the last listener leaves a channel while another one comes, the order to unsubscribe must not come after the
/// order to subscribe, or the newcomer would hear nothing.
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

#[tokio::test]
async fn the_mailbox_is_subscribed_once_and_stays_when_the_last_lock_is_left() {
    let (hub, mut received) = unattended();
    hub.open_mailbox();
    hub.open_mailbox();
    drop(hub.subscribe(&"c".into()));
    let mut orders = Vec::new();
    while let Ok(order) = received.try_recv() {
        orders.push(match order {
            Order::Subscribe(channel) => format!("+{channel}"),
            Order::Unsubscribe(channel) => format!("-{channel}"),
        });
    }
    assert_eq!(orders, ["+leasehold_mailbox:client:0000000000000000", "+c", "-c"]);
    assert_eq!(hub.len(), 0, "it is no lock's channel");
    assert!(!hub.shared.channels.lock().is_empty(), "the connection is needed");
}
