"""The gateway: programs that speak OpenAI or Anthropic are sampled here, and what they ask becomes trees."""
