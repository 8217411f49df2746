pub struct Arrangement {
    pub name: &'static str,
    pub show: fn() -> std::pin::Pin<Box<dyn std::future::Future<Output = Result<(), String>>>>,
}
pub const ALL: [Arrangement; 0] = [];
