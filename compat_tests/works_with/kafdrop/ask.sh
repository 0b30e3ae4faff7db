# KAFDROP is the console's address. Each answer is a line of JSON.
ask="curl -sS --fail-with-body -H Accept:application/json -w \n"

$ask "$KAFDROP/"
$ask "$KAFDROP/topic/orders"
$ask "$KAFDROP/topic/orders/messages?partition=0&offset=0&count=1000&isAnyProto=false"
$ask "$KAFDROP/consumer/billing"
