// Every kind of answer: text, structured content, an image, links, and a refusal. (everything)
const [echo, sum, weather, image, links] = await Promise.all([
  everything.echo({ message: "da capo" }),
  everything.get_sum({ a: 2, b: 40 }),
  everything.get_structured_content({ location: "Chicago" }),
  everything.get_tiny_image({}),
  everything.get_resource_links({ count: 2 }),
]);
let refusal: string;
try {
  await everything.get_structured_content({ location: "Atlantis" });
} catch (error) {
  refusal = error.name;
}
return {
  echo,
  sum: Number(sum.match(/is (\d+)\./)[1]),
  weather,
  image: image.find((part) => part.type === "image"),
  said: image.filter((part) => part.type === "text").map((part) => part.text),
  links: links.filter((part) => part.type === "resource_link").map((part) => part.uri),
  refusal,
};
