export default { test: { testTimeout: 300_000, hookTimeout: 300_000 } }
