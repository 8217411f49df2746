//! Row 14: a client in a loop beside one that is farther away from the server.

use std::time::Duration;

use leasehold_testkit::bench::by_hand::open;
use leasehold_testkit::bench::figures::Unit;

use crate::relay::{FOR_EVER_MS, Run, run};
use crate::runners;
use crate::slow::Slow;
use crate::table::{Aim, Figure};
use crate::worker::Worker;
use crate::{Bench, Outcome};

/// Row 14. In the floor each asks for a list's element, which the server gives to them in order of arrival.
pub(crate) async fn far(bench: &Bench, round: u32) -> Outcome<Vec<Figure>> {
    let mut figures = Vec::new();
    for farther_ms in FARTHER_MS {
        let slow = Slow::start(bench.url(), Duration::from_millis(farther_ms)).await?;
        let urls = [bench.url(), &slow.url()];
        let list = format!("far:{round}:{farther_ms}:floor");
        let mut connection = open(bench.url())?.get_multiplexed_async_connection().await?;
        redis::cmd("LPUSH").arg(&list).arg("token").query_async::<u64>(&mut connection).await?;
        let mut workers = Vec::new();
        for url in urls {
            workers.push(Worker::start(&[runners::IN_ORDER, url, &list]).await?);
        }
        let floor = Share::of(&run(bench, workers, SPAN, 1).await?)?;
        let name = format!("far:{round}:{farther_ms}");
        let mut workers = Vec::new();
        for url in urls {
            let args = [runners::RELAY, url, &name, "1", FOR_EVER_MS, "true"];
            workers.push(Worker::start(&args).await?);
        }
        let ours = Share::of(&run(bench, workers, SPAN, 1).await?)?;
        let what = |part: &str| {
            format!("a client beside one that is {farther_ms} ms farther away: {part}")
        };
        figures.push(
            Figure::new(
                what("turns of the near one for one of the far"),
                Unit::Number,
                ours.near_for_far,
            )
            .floor(floor.near_for_far)
            .aim(Aim::RatioUnder(2.0)),
        );
        figures.push(
            Figure::new(what("turns of the far one"), Unit::PerSecond, ours.far_rate)
                .floor(floor.far_rate)
                .aim(Aim::RatioOver(0.5)),
        );
    }
    Ok(figures)
}

/// How the turns were shared.
struct Share {
    near_for_far: f64,
    far_rate: f64,
}

impl Share {
    fn of(run: &Run) -> Outcome<Self> {
        let [near, far] = run.turns[..] else {
            return Err("two clients were to run".into());
        };
        Ok(Self { near_for_far: near as f64 / far as f64, far_rate: far as f64 / run.seconds })
    }
}

/// How much longer a reply is under way.
const FARTHER_MS: [u64; 3] = [1, 5, 20];
const SPAN: Duration = Duration::from_secs(1);
