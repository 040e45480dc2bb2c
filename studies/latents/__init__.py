"""What trees of latents are worth: learning at equal denoiser calls, and search at equal denoiser calls."""
